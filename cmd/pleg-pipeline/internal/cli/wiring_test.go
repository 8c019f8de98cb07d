package cli_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestFlagsReachTheirOptions gives each flag a value of its own.
func TestFlagsReachTheirOptions(t *testing.T) {
	got, client, err := cli.OptionsOf("--relist-period=2s", "--relist-threshold=3m", "--list-timeout=5s", "--inspect-timeout=6s",
		"--events=auto", "--relist-period-with-events=7s", "--inspectors=8", "--max-quarantine=9m", "--history=1001", "--kubelet-metric-names")
	kit.Must(t, err)
	want := pipeline.Options{
		RelistPeriod: 2 * time.Second, RelistThreshold: 3 * time.Minute, ListTimeout: 5 * time.Second, InspectTimeout: 6 * time.Second,
		Events: pipeline.EventsAuto, RelistPeriodWithEvents: 7 * time.Second, Inspectors: 8, MaxQuarantine: 9 * time.Minute,
		History: 1001, KubeletMetricNames: true,
	}
	if got.Registerer, got.Runtime = nil, nil; !reflect.DeepEqual(got, want) {
		t.Errorf("the options of the pipeline are\n%+v, want\n%+v", got, want)
	}
	of := cri.Options{ListTimeout: 5 * time.Second, StatusTimeout: 6 * time.Second, KubeletMetricNames: true}
	if client.Registerer = nil; !reflect.DeepEqual(client, of) {
		t.Errorf("the options of the client are\n%+v, want\n%+v", client, of)
	}
}

// TestPartsOfADaemon requires that what runs beside the pipeline is seen where it should be.
func TestPartsOfADaemon(t *testing.T) {
	t.Parallel()
	out := newTranscript()
	s := start(t, out, "run", "--simulate=1", "--churn-rate", "0", "--node", "n1", "--listen", "0", "--health-listen", "0.0.0.0:0",
		"--socket", filepath.Join(t.TempDir(), "pleg.sock"), "--otlp", "http://127.0.0.1:1")
	defer s.stopAndWait(t)
	out.await(t, "(sandbox)")
	urls := regexp.MustCompile(`on (http://\S+)`).FindAllStringSubmatch(s.stderr.String(), -1)
	if len(urls) != 2 {
		t.Fatalf("stderr = %q, want two addresses", s.stderr)
	}
	page, port := urls[0][1], urls[1][1][strings.LastIndex(urls[1][1], ":"):]
	wanted := map[string]string{
		page + "/readyz?verbose":                      "[+]otlp: ",
		"http://127.0.0.1" + port + "/readyz?verbose": "[+]otlp: ",
		page + "/metrics":                             "pleg_server_connections 0",
		page + "/stages":                              `"node":"n1"`,
	}
	addresses, err := net.InterfaceAddrs()
	kit.Must(t, err)
	for _, a := range addresses { // as from another machine, which must not learn the names of servers and pods
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			wanted["http://"+ip.IP.String()+port+"/readyz?verbose"] = "[+]otlp ok"
		}
	}
	for url, want := range wanted {
		if code, body := get(t, url); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("GET %s = %d %s, want %q", url, code, body, want)
		}
	}
}

// TestWebConfigHidesPods has an address that others reach and a web configuration without passwords:
// pods are refused to all.
func TestWebConfigHidesPods(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "web.yaml")
	kit.Must(t, os.WriteFile(config, []byte("http_server_config: {http2: false}\n"), 0o600))
	out := newTranscript()
	s := start(t, out, "run", "--simulate=1", "--listen", "0.0.0.0:0", "--web-config", config)
	defer s.stopAndWait(t)
	out.await(t, "(sandbox)")
	port := regexp.MustCompile(`http\S+:([0-9]+)`).FindStringSubmatch(s.stderr.String())
	if code, body := get(t, "http://127.0.0.1:"+port[1]+"/pods"); code != http.StatusForbidden || !strings.Contains(body, "encryption") {
		t.Errorf("GET /pods = %d %s, want that they are refused", code, body)
	}
}

// local is the address of this machine on any listener.
type local struct{ *bufconn.Listener }

func (local) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestWhatRunsBesideThePipeline has a shim that a signal has stopped, and a client that does not read.
func TestWhatRunsBesideThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, err := simruntime.New(simruntime.Options{Seed: 1})
		kit.Must(t, err)
		pod, err := node.AddPod(simruntime.PodSpec{Namespace: "shop", Name: "web-0", Containers: make([]simruntime.ContainerSpec, 1)})
		kit.Must(t, err)
		runtime, web, dir, out := bufconn.Listen(64<<10), bufconn.Listen(64<<10), t.TempDir(), newTranscript()
		kit.Run(t, func(ctx context.Context) error { return node.Serve(ctx, runtime) })
		proc := fstest.MapFS{
			"self/stat": {}, "7/comm": {Data: []byte("containerd-shim\n")}, "7/stat": {Data: []byte("7 (containerd-shim) T 1 1")},
			"7/cmdline": {Data: []byte("containerd-shim-runc-v2\x00-id\x00" + pod.Sandboxes[0].ID)},
		}
		socket := filepath.Join(dir, "s")
		listener, err := net.Listen("unix", socket)
		kit.Must(t, err)
		defer listener.Close()
		client, err := net.Dial("unix", socket)
		kit.Must(t, err)
		defer client.Close()
		served, err := listener.Accept()
		kit.Must(t, err)
		defer served.Close()
		_, err = served.Write([]byte("an event"))
		kit.Must(t, err)
		p := cli.Process{Args: []string{"-r", socket, "-v", "debug", "--watch-processes", "--incident-dir", dir}, Out: io.Discard, Err: out, Proc: proc}
		stop := kit.Run(t, func(ctx context.Context) error {
			return cli.Serve(ctx, p, local{web}, func(ctx context.Context, _ string) (net.Conn, error) { return runtime.DialContext(ctx) })
		})
		time.Sleep(30 * time.Second)
		page := http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return web.DialContext(ctx) },
		}}
		for path, want := range map[string]string{"/hour": `"hung":[0,0,0]`, "/stages": `"runtime":"simruntime `} {
			answer, err := page.Get("http://127.0.0.1" + path)
			kit.Must(t, err)
			if body, _ := io.ReadAll(answer.Body); !strings.Contains(string(body), want) {
				t.Errorf("GET %s = %s, want %s", path, body, want)
			}
			_ = answer.Body.Close()
		}
		kit.Must(t, stop())
		for _, want := range []string{"process of container not watched", "shop/web-0 has a hung shim", "a client of the runtime does not read"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("stderr has no %q:\n%s", want, out)
			}
		}
		files, _ := filepath.Glob(filepath.Join(dir, "incident-*"))
		if len(files) != 1 {
			t.Fatalf("incidents %q, want one", files)
		}
		if r, err := recording.Open(t.Context(), files[0]); err != nil || r.Runtime == nil {
			t.Errorf("the incident is %+v, %v, want the answers of the runtime", r, err)
		}
	})
}

// TestRunWaitsForASocket has no runtime at any well-known socket before the third look.
func TestRunWaitsForASocket(t *testing.T) {
	for wait, want := range map[bool]string{true: "unix:///late", false: ""} {
		synctest.Test(t, func(t *testing.T) {
			looks, began := 0, time.Now()
			p := cli.Process{Err: newTranscript(), Sockets: []string{"unix:///nonexistent/s"}, Getenv: func(name string) string {
				if name != "CONTAINER_RUNTIME_ENDPOINT" {
					return ""
				}
				if looks++; looks == 3 {
					return "unix:///late"
				}
				return ""
			}}
			got, err := cli.FindRuntime(t.Context(), p, wait)
			if got != want || (err == nil) != wait || wait && time.Since(began) != 2*time.Second {
				t.Errorf("with wait %v: %q, %v after %v, want %q", wait, got, err, time.Since(began), want)
			}
		})
	}
}
