package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
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
	n := &node{dir: process.Dir(t), listen: process.FreeAddress(t), flags: flags}
	n.simulate(t)
	n.startDaemon(t)
	n.client = start(t, program(t), "events", "--connect", n.file("pleg.sock"))
	return n
}

func (n *node) file(name string) string { return filepath.Join(n.dir, name) }

// simulate starts the runtime, in place of the running one.
func (n *node) simulate(t *testing.T, flags ...string) {
	t.Helper()
	if n.simulation != nil {
		n.simulation.Kill()
	}
	n.simulation = start(t, program(t), append([]string{"simulate", "--socket", n.file("cri.sock"), "--pods", "30", "--churn-rate", "20"}, flags...)...)
	waitFor(t, "the runtime", func() error { return process.Dial(t.Context(), "unix", n.file("cri.sock")) })
}

// startDaemon starts the daemon and returns once it is ready.
func (n *node) startDaemon(t *testing.T) {
	t.Helper()
	n.daemon = start(t, program(t), append([]string{
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
	p := &prometheus{address: process.FreeAddress(t)}
	start(t, "prometheus", "--config.file", filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
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
		Data struct{ Result []sample }
	}
	err := getJSON(ctx, "http://"+p.address+"/api/v1/query?"+url.Values{"query": {expr}}.Encode(), &answer)
	return answer.Data.Result, err
}

// expect returns an error unless an expression yields this number of samples, at least.
func (p *prometheus) expect(ctx context.Context, expr string, number int) error {
	samples, err := p.query(ctx, expr)
	if err == nil && len(samples) < number {
		err = fmt.Errorf("%s has %d samples, want %d", expr, len(samples), number)
	}
	return err
}

// program returns the path of the program.
func program(t *testing.T) string {
	t.Helper()
	path, err := process.Program()
	must(t, err)
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start runs a program until the test ends.
func start(t *testing.T, name string, args ...string) *process.Process {
	t.Helper()
	return process.Run(t, exec.Command(name, args...)) //nolint:noctx // process.Run ends the program in order
}

// get returns an error unless a page is served.
func get(ctx context.Context, address string) error {
	_, err := process.Get(ctx, http.DefaultClient, address)
	return err
}

// waitFor waits until done returns nil.
func waitFor(t *testing.T, what string, done func() error) {
	t.Helper()
	process.Eventually(t, what, func(context.Context) error { return done() })
}

// getJSON decodes an answer.
func getJSON(ctx context.Context, address string, into any) error {
	text, err := process.Get(ctx, http.DefaultClient, address)
	return errors.Join(err, json.Unmarshal([]byte(text), into))
}
