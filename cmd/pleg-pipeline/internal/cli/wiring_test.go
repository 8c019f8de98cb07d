package cli_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestFlagsReachTheirOptions gives each flag a value of its own.
func TestFlagsReachTheirOptions(t *testing.T) {
	got, client, err := cli.OptionsOf("--relist-period=2s", "--relist-threshold=3m", "--list-timeout=5s", "--inspect-timeout=6s", "--unary-lists",
		"--events=auto", "--relist-period-with-events=7s", "--inspectors=8", "--max-quarantine=9m", "--history=1001", "--kubelet-metric-names")
	kit.Must(t, err)
	want := pipeline.Options{
		RelistPeriod: 2 * time.Second, RelistThreshold: 3 * time.Minute, ListTimeout: 5 * time.Second, InspectTimeout: 6 * time.Second,
		Events: pipeline.EventsAuto, RelistPeriodWithEvents: 7 * time.Second, Inspectors: 8, MaxQuarantine: 9 * time.Minute,
		History: 1001, KubeletMetricNames: true, LookupRemoved: true,
	}
	if got.Registerer, got.Runtime = nil, nil; !reflect.DeepEqual(got, want) {
		t.Errorf("the options of the pipeline are\n%+v, want\n%+v", got, want)
	}
	of := cri.Options{ListTimeout: 5 * time.Second, StatusTimeout: 6 * time.Second, UnaryLists: true, KubeletMetricNames: true}
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
