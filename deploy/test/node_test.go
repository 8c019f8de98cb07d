package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
)

// node is a simulated runtime, a daemon on it and a client of the daemon.
type node struct {
	dir, listen                string
	flags                      []string // of the daemon
	simulation, daemon, client *process.Process
}

// startNode starts a node whose pods change 20 times a second.
func startNode(t *testing.T, flags ...string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "deploy") //nolint:usetesting // short: the path of a socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{dir: dir, listen: freeAddress(t), flags: flags}
	n.simulate(t)
	n.startDaemon(t)
	n.client = start(t, dir, program, "events", "--connect", n.file("pleg.sock"))
	return n
}

func (n *node) file(name string) string { return filepath.Join(n.dir, name) }

// simulate starts the runtime, in place of the running one.
func (n *node) simulate(t *testing.T, flags ...string) {
	t.Helper()
	if n.simulation != nil {
		n.simulation.Kill()
	}
	n.simulation = start(t, n.dir, program, append([]string{"simulate", "--socket", n.file("cri.sock"), "--pods", "30", "--churn-rate", "20"}, flags...)...)
	waitFor(t, "the runtime", func() error { return dial(t.Context(), n.file("cri.sock")) })
}

// startDaemon starts the daemon and returns once it is ready.
func (n *node) startDaemon(t *testing.T) {
	t.Helper()
	n.daemon = start(t, n.dir, program, append([]string{
		"run", "--quiet", "-r", "unix://" + n.file("cri.sock"), "--socket", n.file("pleg.sock"), "--listen", n.listen,
	}, n.flags...)...)
	waitFor(t, "the daemon", func() error { return get(t.Context(), "http://"+n.listen+"/readyz") })
}

// prometheus is a real Prometheus that scrapes nodes each second.
type prometheus struct{ address string }

// startPrometheus starts Prometheus with these rules, if any.
func startPrometheus(t *testing.T, rules []byte, nodes ...*node) *prometheus {
	t.Helper()
	dir := t.TempDir()
	var targets []string
	for _, n := range nodes {
		targets = append(targets, "'"+n.listen+"'")
	}
	write(t, filepath.Join(dir, "rules.yaml"), rules)
	write(t, filepath.Join(dir, "prometheus.yaml"), fmt.Appendf(nil, `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs: [{job_name: pleg-pipeline, static_configs: [{targets: [%s]}]}]
`, strings.Join(targets, ", ")))
	p := &prometheus{address: freeAddress(t)}
	start(t, dir, "prometheus", "--config.file", filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", p.address)
	waitFor(t, "Prometheus", func() error { return get(t.Context(), "http://"+p.address+"/-/ready") })
	return p
}

// sample is one value of the answer to a query.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"` // the time and the text of a number
}

func (p *prometheus) query(ctx context.Context, expr string) ([]sample, error) {
	var answer struct {
		Error string
		Data  struct{ Result []sample }
	}
	if err := getJSON(ctx, "http://"+p.address+"/api/v1/query?"+url.Values{"query": {expr}}.Encode(), &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Data.Result, nil
}

// expect returns an error unless an expression has this number of samples, at least.
func (p *prometheus) expect(ctx context.Context, expr string, number int) error {
	samples, err := p.query(ctx, expr)
	if err == nil && len(samples) < number {
		err = fmt.Errorf("%s has %d samples, want %d", expr, len(samples), number)
	}
	return err
}

// start runs a program until the test ends.
func start(t *testing.T, dir, name string, args ...string) *process.Process {
	t.Helper()
	p, err := process.Start(exec.Command(name, args...), filepath.Join(dir, fmt.Sprintf("%s-%s.log", filepath.Base(name), args[0]))) //nolint:noctx // it is ended in order
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("end of %s:\n%s", p.Log, p.Tail())
		}
	})
	return p
}

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func dial(ctx context.Context, socket string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err == nil {
		err = conn.Close()
	}
	return err
}

func get(ctx context.Context, address string) error {
	response, err := ask(ctx, address)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// getJSON decodes an answer, of any status.
func getJSON(ctx context.Context, address string, into any) error {
	response, err := ask(ctx, address)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return json.NewDecoder(response.Body).Decode(into)
}

func ask(ctx context.Context, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}

// waitTimeout is long because the machine may be busy.
const waitTimeout = 2 * time.Minute

// waitFor waits until done returns nil.
func waitFor(t *testing.T, what string, done func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), waitTimeout, fmt.Errorf("not within %v", waitTimeout))
	defer cancel()
	if err := process.Await(ctx, func(context.Context) error { return done() }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
