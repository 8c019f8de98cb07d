package deploy_test

import (
	"bufio"
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
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// TestRules runs promtool on the alerts and on their tests.
func TestRules(t *testing.T) {
	var rule struct {
		Spec json.RawMessage `json:"spec"`
	}
	readYAML(t, "../monitoring/rules.yaml", &rule)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.json"), rule.Spec)
	tests, err := os.ReadFile("../monitoring/rules_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "rules_test.yaml"), tests)
	for _, args := range [][]string{{"check", "rules", "rules.json"}, {"test", "rules", "rules_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	requireRunbook(t, rule.Spec)
}

// requireRunbook requires a section of docs/operations.md for each alert.
func requireRunbook(t *testing.T, spec []byte) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`"alert":"(\w+)"`).FindAllSubmatch(spec, -1) {
		if !strings.Contains(string(page), "\n### "+string(found[1])+"\n") {
			t.Errorf("docs/operations.md has no section %s", found[1])
		}
	}
}

// TestDashboard evaluates each expression of the dashboard with a real Prometheus that
// scrapes a daemon, while the runtime has a storm, a hang and an outage.
func TestDashboard(t *testing.T) {
	for name, flags := range map[string][]string{"own names": nil, "the kubelet's names": {"--kubelet-metric-names"}} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, flags...)
			time.Sleep(15 * time.Second) // the storm
			n.hang(t)
			n.outage(t)
			time.Sleep(5 * time.Second)
			for title, exprs := range expressions(t) {
				for _, expr := range exprs {
					if flags != nil {
						expr = kubeletNames(t, expr)
					}
					if samples, err := n.query(t.Context(), expr); err != nil || samples == 0 {
						t.Errorf("panel %q: %s: %d samples, %v", title, expr, samples, err)
					}
				}
			}
		})
	}
}

// node is a simulated runtime, a daemon on it, a client of the daemon and a Prometheus.
type node struct {
	dir, runtime, listen, prometheus string
	simulation                       *exec.Cmd
}

func startNode(t *testing.T, flags ...string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "deploy") //nolint:usetesting // short: the path of a socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{dir: dir, runtime: filepath.Join(dir, "cri.sock"), listen: freeAddress(t), prometheus: freeAddress(t)}
	n.simulation = n.start(t, program(t), "simulate", "--socket", n.runtime, "--pods", "30", "--churn-rate", "20")
	waitFor(t, func() bool { _, err := os.Stat(n.runtime); return err == nil })
	socket := filepath.Join(dir, "pleg.sock")
	n.start(t, program(t), append([]string{
		"run", "--quiet", "-r", "unix://" + n.runtime, "--socket", socket, "--listen", n.listen, "--events", "auto",
	}, flags...)...)
	waitFor(t, func() bool { return get(t.Context(), "http://"+n.listen+"/readyz") == nil })
	n.start(t, program(t), "events", "--connect", socket)
	config := fmt.Sprintf("scrape_configs: [{job_name: pleg-pipeline, scrape_interval: 1s, static_configs: [{targets: ['%s']}]}]", n.listen)
	write(t, filepath.Join(dir, "prometheus.yaml"), []byte(config))
	n.start(t, "prometheus", "--config.file", filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", n.prometheus)
	waitFor(t, func() bool { return get(t.Context(), "http://"+n.prometheus+"/-/ready") == nil })
	return n
}

// start runs a program until the test ends.
func (n *node) start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...) //nolint:noctx // it is ended in order below
	log, err := os.Create(filepath.Join(n.dir, fmt.Sprintf("%s-%s.log", filepath.Base(name), args[0])))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s: %s", log.Name(), text)
		}
	})
	return cmd
}

// hang stops the runtime for a while.
func (n *node) hang(t *testing.T) {
	t.Helper()
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := n.simulation.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
	}
}

// outage ends the runtime and starts it again.
func (n *node) outage(t *testing.T) {
	t.Helper()
	if err := n.simulation.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { _, err := os.Stat(n.runtime); return errors.Is(err, os.ErrNotExist) })
	time.Sleep(3 * time.Second)
	n.start(t, program(t), "simulate", "--socket", n.runtime, "--pods", "30", "--churn-rate", "20", "--seed", "2")
}

// query returns the number of samples of an expression.
func (n *node) query(ctx context.Context, expr string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.prometheus+"/api/v1/query?"+url.Values{"query": {expr}}.Encode(), http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Error string
		Data  struct{ Result []any }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Error != "" {
		return 0, errors.New(answer.Error)
	}
	return len(answer.Data.Result), nil
}

// expressions returns the expressions of each panel, as Grafana would send them.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	readYAML(t, "../monitoring/dashboard.json", &dashboard)
	if len(dashboard.Panels) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	all := make(map[string][]string)
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], strings.NewReplacer("$instance", ".*", "$__rate_interval", "20s").Replace(target.Expr))
		}
	}
	return all
}

// kubeletNames replaces our names of metrics by the kubelet's, where docs/metrics.md has
// them.
func kubeletNames(t *testing.T, expr string) string {
	t.Helper()
	page, err := os.Open("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = page.Close() }()
	row := regexp.MustCompile("^\\| `(pleg_\\w+)[^|]*\\| `(kubelet_\\w+)")
	for lines := bufio.NewScanner(page); lines.Scan(); {
		if found := row.FindStringSubmatch(lines.Text()); found != nil {
			expr = regexp.MustCompile(`\b`+found[1]+`(_bucket)?\b`).ReplaceAllString(expr, found[2]+"$1")
		}
	}
	return expr
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func get(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func waitFor(t *testing.T, ready func() bool) {
	t.Helper()
	for range 600 {
		if ready() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("not ready after a minute")
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
