package cli_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// local is the address of this machine on any listener.
type local struct{ *bufconn.Listener }

func (local) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestWhatRunsBesideThePipeline uses a shim in a frozen cgroup, and a client that does not read.
func TestWhatRunsBesideThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := simruntime.New(simruntime.Options{Seed: 1})
		pod := node.AddPod(simruntime.PodSpec{Namespace: "shop", Name: "web-0", Containers: make([]pleg.ContainerStatus, 1)})
		runtime, web, dir, out := bufconn.Listen(64<<10), bufconn.Listen(64<<10), t.TempDir(), newTranscript()
		kit.Run(t, func(ctx context.Context) error { return node.Serve(ctx, runtime) })
		pid := os.Getpid() // a process that the kernel can follow
		stat := &fstest.MapFile{Data: fmt.Appendf(nil, "%d (containerd-shim) S 1 1", pid)}
		proc := fstest.MapFS{
			"self/stat": {}, fmt.Sprintf("%d/stat", pid): stat, fmt.Sprintf("%d/task/%d/stat", pid, pid): stat,
			fmt.Sprintf("%d/cmdline", pid): {Data: []byte("containerd-shim-runc-v2\x00-id\x00" + pod.Sandboxes[0].ID)},
			fmt.Sprintf("%d/cgroup", pid):  {Data: []byte("0::/pod/frozen\n")},
		}
		cgroups := fstest.MapFS{"pod/frozen/cgroup.events": {Data: []byte("populated 1\nfrozen 1\n")}}
		listener, socket := kit.Socket(t)
		client, err := net.Dial("unix", socket)
		kit.Must(t, err)
		defer client.Close()
		served, err := listener.Accept()
		kit.Must(t, err)
		defer served.Close()
		_, err = served.Write([]byte("an event"))
		kit.Must(t, err)
		p := cli.Process{Args: []string{"-r", socket, "--incident-dir", dir}, Out: io.Discard, Err: out, Proc: proc, Cgroups: cgroups}
		stop := kit.Run(t, func(ctx context.Context) error {
			return cli.Serve(ctx, p, local{web}, nil, nil, func(ctx context.Context, _ string) (net.Conn, error) { return runtime.DialContext(ctx) })
		})
		time.Sleep(30 * time.Second)
		for path, want := range map[string]string{"/hour": `"hung":[0,0,0]`, "/stages": `"runtime":"simruntime 0.1.0"`} {
			if body := getPage(t, web, path); !strings.Contains(body, want) {
				t.Errorf("GET %s = %s, want %s", path, body, want)
			}
		}
		kit.Must(t, stop())
		for _, want := range []string{"shop/web-0 has a hung shim", "a client does not read from the runtime"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("stderr has no %q:\n%s", want, out)
			}
		}
		files, _ := filepath.Glob(filepath.Join(dir, "incident-*"))
		if len(files) != 1 {
			t.Fatalf("incidents %q, want one", files)
		}
		if r, err := recording.Open(t.Context(), files[0]); err != nil || r.Runtime == nil || r.Header.Program != "(devel)" || !r.Header.Redacted {
			t.Errorf("the incident is %+v, %v, want the answers of the runtime", r, err)
		}
	})
}

// everywhere is an address that other machines reach.
type everywhere struct{ *bufconn.Listener }

func (everywhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 80} }

// Other machines learn from neither server which pods there are.
func TestStrangersSeeNoPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, runtime := simruntime.New(simruntime.Options{Seed: 1}), bufconn.Listen(64<<10)
		pod := node.AddPod(simruntime.PodSpec{Namespace: "shop", Name: "web-0", Containers: make([]pleg.ContainerStatus, 1)})
		node.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: pod.UID, Hang: true})
		kit.Run(t, func(ctx context.Context) error { return node.Serve(ctx, runtime) })
		web, health := bufconn.Listen(64<<10), bufconn.Listen(64<<10)
		p := cli.Process{Args: []string{"--quiet"}, Out: io.Discard, Err: io.Discard, Proc: fstest.MapFS{}, Cgroups: fstest.MapFS{}}
		kit.Run(t, func(ctx context.Context) error {
			return cli.Serve(ctx, p, everywhere{web}, everywhere{health}, nil, func(ctx context.Context, _ string) (net.Conn, error) { return runtime.DialContext(ctx) })
		})
		time.Sleep(time.Minute)
		for _, l := range []*bufconn.Listener{web, health} {
			if text := getPage(t, l, "/readyz?verbose"); !strings.Contains(text, "[+]verdict: PROBLEM: hung container since ") || strings.Contains(text, "web-0") {
				t.Errorf("/readyz = %q, want the cause without the pod", text)
			}
		}
	})
}

// A daemon that can no longer serve ends and says why, whichever of its listeners is closed.
func TestEndsWithEachServer(t *testing.T) {
	for broken, name := range []string{"page", "probes", "socket"} {
		kit.Bubble(t, name, func(t *testing.T) {
			node, runtime, closed := simruntime.New(simruntime.Options{}), bufconn.Listen(64<<10), bufconn.Listen(1)
			kit.Run(t, func(ctx context.Context) error { return node.Serve(ctx, runtime) })
			kit.Must(t, closed.Close())
			var of [3]net.Listener
			of[broken] = local{closed}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			said := newTranscript()
			p := cli.Process{Args: []string{"-v", "info"}, Out: io.Discard, Err: said, Proc: fstest.MapFS{}, Cgroups: fstest.MapFS{}}
			err := cli.Serve(ctx, p, of[0], of[1], of[2], func(ctx context.Context, _ string) (net.Conn, error) { return runtime.DialContext(ctx) })
			if err == nil || !strings.Contains(err.Error(), "on 127.0.0.1:0: closed") {
				t.Errorf("%v, want that nothing is accepted any more", err)
			}
			if logged := strings.Contains(said.String(), `msg="server started" part=server`); logged != (name == "socket") {
				t.Errorf("logged %s", said)
			}
		})
	}
}

// The summary counts what a blocked reader of stdout missed, also if it reads on only after the end.
func TestSummaryOfADaemon(t *testing.T) {
	for end, afterEnd := range map[string]bool{"reads on before the end": false, "reads on after the end": true} {
		kit.Bubble(t, end, func(t *testing.T) {
			node, runtime := simruntime.New(simruntime.Options{Seed: 1}), bufconn.Listen(64<<10)
			node.Populate(simruntime.Population{Pods: 4, Containers: 1})
			kit.Run(t, func(ctx context.Context) error { return node.Serve(ctx, runtime) })
			gate, out, said := make(chan struct{}), newTranscript(), newTranscript()
			p := cli.Process{Args: strings.Fields("-o json --history 8"), Out: gated{out, gate}, Err: said, Proc: fstest.MapFS{}, Cgroups: fstest.MapFS{}}
			stop := kit.Run(t, func(ctx context.Context) error {
				return cli.Serve(ctx, p, nil, nil, nil, func(ctx context.Context, _ string) (net.Conn, error) { return runtime.DialContext(ctx) })
			})
			for range 10 {
				time.Sleep(5 * time.Second)
				node.Burst(4, simruntime.Restart)
			}
			if !afterEnd {
				close(gate)
			}
			time.Sleep(5 * time.Second)
			if afterEnd {
				time.AfterFunc(time.Second/2, func() { close(gate) })
			}
			kit.Must(t, stop())
			var missed uint64
			for _, ev := range decode(t, out.String()) {
				missed += ev.Missed
			}
			if want := regexp.MustCompile(fmt.Sprintf(`context canceled after 55(.5)?s: 5[56] relists, 92 events, %d missed by subscribers\n$`, missed)); missed < 50 || !want.MatchString(said.String()) {
				t.Errorf("stderr %q, want %v", said, want)
			}
		})
	}
}

// What was published before the end is printed, if the reader continues within a second.
func TestLastEventsOfADaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, runtime := simruntime.New(simruntime.Options{Seed: 1}), bufconn.Listen(64<<10)
		node.Populate(simruntime.Population{Pods: 4, Containers: 1})
		kit.Run(t, func(ctx context.Context) error { return node.Serve(ctx, runtime) })
		gate, out := make(chan struct{}), newTranscript()
		p := cli.Process{Args: []string{"-o", "json"}, Out: gated{out, gate}, Err: io.Discard, Proc: fstest.MapFS{}, Cgroups: fstest.MapFS{}}
		stop := kit.Run(t, func(ctx context.Context) error {
			return cli.Serve(ctx, p, nil, nil, nil, func(ctx context.Context, _ string) (net.Conn, error) { return runtime.DialContext(ctx) })
		})
		time.Sleep(5 * time.Second)
		time.AfterFunc(time.Second/2, func() { close(gate) })
		kit.Must(t, stop())
		if all := decode(t, out.String()); len(all) != 8 {
			t.Errorf("%d events, want 8:\n%s", len(all), out)
		}
	})
}

// An update of the runtime is shown within a minute.
func TestUpdateOfTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, runtime, web := time.Now(), bufconn.Listen(64<<10), bufconn.Listen(64<<10)
		rawruntime.Serve(t, &rawruntime.Runtime{After: func(answer any) any {
			if v, ok := answer.(*runtimeapi.VersionResponse); ok && time.Since(began) > 30*time.Second {
				v.RuntimeVersion = "v8\x1b"
			}
			return answer
		}}, runtime)
		p := cli.Process{Args: []string{"-q"}, Out: io.Discard, Err: io.Discard, Proc: fstest.MapFS{}, Cgroups: fstest.MapFS{}}
		kit.Run(t, func(ctx context.Context) error {
			return cli.Serve(ctx, p, local{web}, nil, nil, func(ctx context.Context, _ string) (net.Conn, error) { return runtime.DialContext(ctx) })
		})
		for _, want := range []string{"fake v7", "fake v8?"} {
			time.Sleep(59 * time.Second)
			if body := getPage(t, web, "/stages"); !strings.Contains(body, `"runtime":"`+want+`"`) {
				t.Errorf("after %v: %s, want %s", time.Since(began), body, want)
			}
		}
	})
}

// getPage returns what a daemon in memory serves.
func getPage(t *testing.T, web *bufconn.Listener, path string) string {
	t.Helper()
	page := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return web.DialContext(ctx) },
	}}
	answer, err := page.Get("http://127.0.0.1" + path)
	kit.Must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	kit.Must(t, err)
	return string(body)
}

// versions is a runtime that answers with these versions, one after the other; with an error in the place of an empty one.
type versions struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	left []string
}

// Version implements the service.
func (v *versions) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	version := v.left[0]
	if v.left = v.left[1:]; version == "" {
		return nil, status.Error(codes.Internal, "it starts")
	}
	return &runtimeapi.VersionResponse{RuntimeName: "crio", RuntimeVersion: version}, nil
}

// The page names the version of the runtime, also after an update, and the last one while the runtime does not say it.
func TestVersionOfTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := grpc.NewServer()
		runtimeapi.RegisterRuntimeServiceServer(server, &versions{left: []string{"", "1", "", "2", "2"}})
		dial, _ := kit.Serve(t, kit.GRPC(server))
		client, err := cri.New("/in-memory", cri.Options{DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) })}})
		kit.Must(t, err)
		var name atomic.Value
		name.Store("its address")
		stop := kit.Run(t, func(ctx context.Context) error { return cli.Identify(ctx, client, &name) })
		for minute, want := range []string{"its address", "crio 1", "crio 1", "crio 2"} {
			synctest.Wait()
			if got := name.Load(); got != want {
				t.Errorf("after %d min the name is %q, want %q", minute, got, want)
			}
			time.Sleep(time.Minute)
		}
		kit.Must(t, stop())
		kit.Must(t, client.Close())
	})
}
