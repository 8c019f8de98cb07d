package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func exampleResults() *Results {
	o := &Outcome{Name: "burst/profile=node/containers=2/pods=110", Group: "burst", Title: "a burst"}
	for i, c := range everyone() {
		o.row(c).add(Metrics{"last": 3600 / float64(i+1), "limit": 3000 / float64(i+1), "client": 10, "server": 20})
		o.row(c).add(Metrics{"last": 3700 / float64(i+1), "limit": 3000 / float64(i+1), "client": 11, "server": 20})
	}
	return &Results{Runs: 2, Partial: "interrupted in scenario x", Scenarios: []*Outcome{o}, Steps: []Step{
		{Name: "FanOut/impl=dispatcher/subscribers=1/stalled=0", Metrics: map[string]*Figure{"ns/event-subscriber": {Median: 5, Min: 4, Max: 6}}},
		{Name: "FanOut/impl=dispatcher/subscribers=10/stalled=0", Metrics: map[string]*Figure{"ns/event-subscriber": {Median: 5, Min: 4, Max: 6}}},
	}}
}

func TestReportRegeneratesEveryFigure(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	text := "# Page\n\n<!-- figures: burst -->\nold figures\n<!-- end -->\n\nkept\n\n<!-- figures: targets -->\n<!-- end -->\n"
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gone.svg"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := exampleResults()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	again, err := readResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := report(again, dir, page); err != nil {
		t.Fatal(err)
	}
	first := contents(t, page)
	for _, want := range []string{"kept", "a burst", "| kubelet |", "pods110-time.svg", "not measured", "**missed**"} {
		if !strings.Contains(first, want) {
			t.Errorf("the page lacks %q:\n%s", want, first)
		}
	}
	if strings.Index(first, "pods110-time.svg") < strings.Index(first, "| kubelet |") {
		t.Errorf("the plots of a scenario do not follow its table:\n%s", first)
	}
	if strings.Contains(first, "old figures") {
		t.Error("the page still has the old figures")
	}
	if err := report(again, dir, page); err != nil {
		t.Fatal(err)
	}
	if second := contents(t, page); second != first {
		t.Errorf("a second report is another:\n%s", second)
	}
	if _, err := os.Stat(filepath.Join(dir, "gone.svg")); !os.IsNotExist(err) {
		t.Error("a plot of earlier results is still there")
	}
	for _, file := range []string{"burst-profilenode-containers2-pods110-time.svg", "fanout.svg"} {
		if svg := contents(t, filepath.Join(dir, file)); !strings.Contains(svg, "<svg") || !strings.Contains(svg, "(ms)") && file != "fanout.svg" {
			t.Errorf("%s is no plot with units", file)
		}
	}
	if md := contents(t, filepath.Join(dir, resultsName)); !strings.Contains(md, "**Partial**") {
		t.Error("partial results do not say so")
	}
}

func TestPlotsAreSeenFromThePage(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct{ from, to, want string }{
		{"../../docs", "../results", "../bench/results"},
		{"docs", "docs/results", "results"},
	} {
		want := c.want
		if c.from == "../../docs" {
			here, err := filepath.Abs("..")
			if err != nil {
				t.Fatal(err)
			}
			want = "../" + filepath.Base(here) + "/results"
		}
		if got, err := relative(c.from, c.to); err != nil || got != want {
			t.Errorf("%s from %s is %q, %v; want %q", c.to, c.from, got, err, want)
		}
	}
}

func contents(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestReadResultsSaysHowToGetThem(t *testing.T) {
	if _, err := readResults(t.TempDir()); err == nil || !strings.Contains(err.Error(), "make bench") {
		t.Errorf("readResults of nothing = %v", err)
	}
}

func TestParseSteps(t *testing.T) {
	out := "pkg: x\nBenchmarkRelist/impl=a/pods=10-2 \t 5\t 400 ns/op\t 4.0 ns/pod\t 7 B/op\t 1 allocs/op\n" +
		"BenchmarkRelist/impl=a/pods=10-2 \t 5\t 600 ns/op\t 6.0 ns/pod\t 7 B/op\t 1 allocs/op\n"
	steps := parseSteps([]byte(out))
	if len(steps) != 1 || steps[0].Name != "Relist/impl=a/pods=10" || steps[0].parameter("pods") != "10" {
		t.Fatalf("steps = %+v", steps)
	}
	if f := steps[0].Metrics["ns/pod"]; f == nil || f.Median != 5 || f.Min != 4 || f.Max != 6 {
		t.Errorf("ns/pod = %+v, want 5 (4 - 6)", f)
	}
	steps = append(steps, parseSteps([]byte("pkg: x\nBenchmarkEvents-2 \t 1\t 9000 ns/op\t 3 ns/event\t 8 B/op\t 2 allocs/op\n"))...)
	for _, want := range []string{"| Relist/impl=a/pods=10 | 5 (4 - 6) | 500 (400 - 600) | 7 | 1 |", "| Events | 3 | 9000 | 8 | 2 |"} {
		if table := stepTable(steps); !strings.Contains(table, want) {
			t.Errorf("no %q in the table\n%s", want, table)
		}
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 3: "3", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 54321: "54321", 654321: "654 k"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}
