package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func exampleResults() *Results {
	o := &Outcome{Name: "burst/profile=node/containers=2/pods=110"}
	for i, c := range candidates(everyone) {
		o.row(c).add(Metrics{"last": 3600 / float64(i+1), "limit": 3000 / float64(i+1), "client": 10, "server": 20})
		o.row(c).add(Metrics{"last": 3700 / float64(i+1), "limit": 3000 / float64(i+1), "client": 11, "server": 20})
	}
	return &Results{Runs: 2, Partial: "interrupted in scenario x", Scenarios: []*Outcome{o}, Steps: []Step{
		{Name: "FanOut/impl=dispatcher/subscribers=1/stalled=0", Metrics: map[string]*Figure{"ns/event-subscriber": {Median: 5, Min: 4, Max: 6}}},
		{Name: "FanOut/impl=dispatcher/subscribers=10/stalled=0", Metrics: map[string]*Figure{"ns/event-subscriber": {Median: 5, Min: 4, Max: 6}}},
	}}
}

// renderExample writes a page and the report of example results, as read from
// their file, into a new folder.
func renderExample(t *testing.T) (dir, page string, r *Results) {
	t.Helper()
	dir = t.TempDir()
	page = filepath.Join(dir, "page.md")
	text := "# Page\n\n<!-- figures: plots -->\nold figures\n<!-- end -->\n\nkept\n\n<!-- figures: targets -->\n<!-- end -->\n"
	for file, text := range map[string]string{page: text, filepath.Join(dir, "gone.svg"): ""} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := exampleResults().write(dir); err != nil {
		t.Fatal(err)
	}
	r, err := readResults(dir)
	if err == nil {
		err = report(r, dir, page)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, page, r
}

func TestReportFillsThePage(t *testing.T) {
	dir, page, r := renderExample(t)
	first := contents(t, page)
	for _, want := range []string{"kept", "(fanout.svg)", "not measured", "**1.22, missed**"} {
		if !strings.Contains(first, want) {
			t.Errorf("the page lacks %q:\n%s", want, first)
		}
	}
	if strings.Contains(first, "old figures") {
		t.Error("the page still has the old figures")
	}
	if err := report(r, dir, page); err != nil {
		t.Fatal(err)
	}
	if second := contents(t, page); second != first {
		t.Errorf("a second report differs:\n%s", second)
	}
	if err := os.WriteFile(page, []byte("<!-- figures: typo -->\n<!-- end -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := report(r, dir, page); err == nil || !strings.Contains(err.Error(), `"typo"`) {
		t.Errorf("report of an unknown part = %v", err)
	}
}

func TestReportWritesTablesAndPlots(t *testing.T) {
	dir, _, _ := renderExample(t)
	text := contents(t, filepath.Join(dir, resultsName))
	for _, want := range []string{"**Partial**", "110 pods x 2 exit at once, node latency (2 runs", "| kubelet |", "Not measured"} {
		if !strings.Contains(text, want) {
			t.Errorf("the results lack %q:\n%s", want, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "gone.svg")); !os.IsNotExist(err) {
		t.Error("a plot of earlier results still exists")
	}
	for file, unit := range map[string]string{"burst-width.svg": "(ms)", "fanout.svg": "ns per event"} {
		if svg := contents(t, filepath.Join(dir, file)); !strings.Contains(svg, "<svg") || !strings.Contains(svg, unit) {
			t.Errorf("%s is not a plot with the unit %q", file, unit)
		}
		if !strings.Contains(text, "("+file+")") {
			t.Errorf("the results do not show %s", file)
		}
	}
}

// The page and the tables must follow from results.json: make -C bench report
// renders them again.
func TestReportIsUpToDate(t *testing.T) {
	const root, results = "../..", "../results"
	dir := t.TempDir()
	page := filepath.Join("docs", "benchmarks.md")
	text := contents(t, filepath.Join(root, page))
	r, err := readResults(results)
	if err := errors.Join(err, os.MkdirAll(filepath.Join(dir, "docs"), 0o755), os.MkdirAll(filepath.Join(dir, "bench/results"), 0o755),
		os.WriteFile(filepath.Join(dir, page), []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := report(r, filepath.Join(dir, "bench/results"), filepath.Join(dir, page)); err != nil {
		t.Fatal(err)
	}
	if contents(t, filepath.Join(dir, page)) != text {
		t.Errorf("%s is not up to date", page)
	}
	committed, err := filepath.Glob(results + "/*.[ms]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range committed {
		rendered, err := os.ReadFile(filepath.Join(dir, "bench/results", filepath.Base(file)))
		if err != nil || string(rendered) != contents(t, file) {
			t.Errorf("%s is not up to date: %v", file, err)
		}
	}
	if drawn := charts(r); len(committed) != len(drawn)+1 {
		t.Errorf("%s has %d pages and plots, want %d", results, len(committed), len(drawn)+1)
	}
}

func TestPlotsAreReadable(t *testing.T) {
	r, err := readResults("../results")
	if err != nil {
		t.Fatal(err)
	}
	drawn := charts(r)
	for _, c := range drawn {
		if len(c.series) > mostSeries {
			t.Errorf("%s has %d series, want at most %d", c.file, len(c.series), mostSeries)
		}
		if len(c.title) > 45 {
			t.Errorf("%s has the title %q, which is wider than the plot", c.file, c.title)
		}
	}
	for _, file := range pagePlots {
		if !slices.ContainsFunc(drawn, func(c chart) bool { return c.file == file }) {
			t.Errorf("the page shows %s, which is not drawn", file)
		}
	}
}

func TestLogRangeLeavesRoom(t *testing.T) {
	for _, c := range []struct{ low, high, from, to float64 }{
		{3, 70, 2, 100}, {1, 10, 0.5, 20}, {240, 4000, 200, 5000}, {7, 7, 5, 10},
	} {
		if from, to := logRange(c.low, c.high); from != c.from || to != c.to {
			t.Errorf("logRange(%v, %v) = %v, %v; want %v, %v", c.low, c.high, from, to, c.from, c.to)
		}
	}
}

func TestPlotsAreRelativeToThePage(t *testing.T) {
	t.Chdir("..")
	for to, want := range map[string]string{"results": "../bench/results", "../docs/x": "x"} {
		if got, err := relative("../docs", to); err != nil || got != want {
			t.Errorf("%s from ../docs is %q, %v; want %q", to, got, err, want)
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

func TestReadResultsErrorNamesTheCommand(t *testing.T) {
	if _, err := readResults(t.TempDir()); err == nil || !strings.Contains(err.Error(), "make bench") {
		t.Errorf("readResults of nothing = %v", err)
	}
}

func TestReadResultsKnowsEarlierNamesOfSteps(t *testing.T) {
	dir := t.TempDir()
	r := &Results{Steps: []Step{{Name: "Relist/impl=kubelet/pods=110/listed=anew"}, {Name: "Relist/impl=kubelet/pods=110/listed=again"}}}
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	r, err := readResults(dir)
	if err != nil || r.Steps[0].parameter("objects") != "new" || r.Steps[1].parameter("objects") != "same" {
		t.Errorf("earlier results are read as %+v, %v", r, err)
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

func TestNumberHasThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 3: "3", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 54321: "54321", 654321: "654 k"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}
