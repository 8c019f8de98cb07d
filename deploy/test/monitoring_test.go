package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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
	must(t, err)
	write(t, filepath.Join(dir, "rules_test.yaml"), tests)
	promtool(t, dir, "check", "rules", "rules.json")
	promtool(t, dir, "test", "rules", "rules_test.yaml")
	requireRunbook(t, rule.Spec)
}

func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// requireRunbook requires a section of docs/operations.md for each alert.
func requireRunbook(t *testing.T, spec []byte) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	must(t, err)
	for _, found := range regexp.MustCompile(`"alert":"(\w+)"`).FindAllSubmatch(spec, -1) {
		if !strings.Contains(string(page), "\n### "+string(found[1])+"\n") {
			t.Errorf("docs/operations.md has no section %s", found[1])
		}
	}
}

// TestDashboardShows runs promtool on what each panel shows of the nodes that are chosen.
func TestDashboardShows(t *testing.T) {
	text, err := os.ReadFile("../monitoring/dashboard_test.yaml")
	must(t, err)
	series := regexp.MustCompile(`(?m)^ +- \{series: .*instance="n1".*$`)
	tests := series.ReplaceAllStringFunc(string(text), func(line string) string {
		return line + "\n" + strings.Replace(line, `"n1"`, `"other"`, 1)
	})
	for title, exprs := range expressions(t, "n1|n2", "5m") {
		for letter, expr := range exprs {
			name := regexp.MustCompile(`expr: '?` + regexp.QuoteMeta(title+" "+letter) + `\b'?`)
			if n := len(name.FindAllString(tests, -1)); n != 1 {
				t.Errorf("dashboard_test.yaml has %d tests of the panel %q, %s, want 1", n, title, letter)
			}
			tests = name.ReplaceAllLiteralString(tests, "expr: "+strconv.Quote("round(1000 * ("+expr+"))"))
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "dashboard_test.yaml"), []byte(tests))
	promtool(t, dir, "test", "rules", "dashboard_test.yaml")
}

// TestDashboard evaluates each expression of the dashboard with a real Prometheus that
// scrapes a daemon, while the runtime goes through a storm, a hang and an outage.
func TestDashboard(t *testing.T) {
	n := startNode(t, "--events", "auto")
	p := startPrometheus(t, nil, n)
	_ = n.simulation.Pause()
	time.Sleep(2 * time.Second) // a few lists hang
	_ = n.simulation.Continue()
	n.simulation.Kill()
	waitFor(t, "the outage", func() error { return p.expect(t.Context(), "pleg_relist_errors_total > 0", 1) })
	n.simulate(t, "--seed", "2")
	for title, exprs := range expressions(t, ".*", "20s") {
		for _, expr := range exprs {
			waitFor(t, fmt.Sprintf("panel %q", title), func() error { return p.expect(t.Context(), expr, 1) })
		}
	}
}

// expressions returns the expressions of each panel by their letters, as Grafana would send them.
func expressions(t *testing.T, instance, interval string) map[string]map[string]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	readYAML(t, "../monitoring/dashboard.json", &dashboard)
	if len(dashboard.Panels) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	all := make(map[string]map[string]string)
	for _, p := range dashboard.Panels {
		all[p.Title] = make(map[string]string)
		for _, target := range p.Targets {
			all[p.Title][target.RefID] = strings.NewReplacer("$instance", instance, "$__rate_interval", interval).Replace(target.Expr)
		}
	}
	return all
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	must(t, err)
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	must(t, os.WriteFile(file, data, 0o600))
}
