package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func contents(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestReportIsUpToDate renders everything again from the results, as make -C bench report
// does.
func TestReportIsUpToDate(t *testing.T) {
	const committed, page = "../results", "../../docs/benchmarks.md"
	r, err := readResults(committed)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copied := filepath.Join(dir, "page.md")
	if err := os.WriteFile(copied, []byte(contents(t, page)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := report(r, dir, copied); err != nil {
		t.Fatal(err)
	}
	if contents(t, copied) != contents(t, page) {
		t.Errorf("%s is not up to date", page)
	}
	if contents(t, filepath.Join(dir, resultsName)) != contents(t, filepath.Join(committed, resultsName)) {
		t.Errorf("%s is not up to date", resultsName)
	}
}

func TestReportOfResults(t *testing.T) {
	r := new(Results)
	for i, c := range candidates(everyone) {
		row := &Row{Scenario: burst110, Candidate: c, Revision: "abc"}
		row.add(Metrics{"last": 3600 / float64(i+1), "limit": 3000 / float64(i+1), "client": 10})
		row.add(Metrics{"last": 3700 / float64(i+1), "limit": 3000 / float64(i+1), "client": 12})
		r.Rows = append(r.Rows, row)
	}
	for _, want := range []string{"| kubelet |", "| `" + burst110 + "`: last event (ms) | 3650 | 1825 |", "client CPU (ms) | 11 |"} {
		if table := section(r, "burst"); !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if got := section(r, "idle"); !strings.Contains(got, "Not measured") {
		t.Errorf("a group without results: %s", got)
	}
	for _, want := range []string{"not measured", "**1.22, missed**"} {
		if table := targetTable(r); !strings.Contains(table, want) {
			t.Errorf("the targets lack %q:\n%s", want, table)
		}
	}
	dir := t.TempDir()
	if err := report(r, dir, ""); err != nil || !strings.Contains(contents(t, filepath.Join(dir, resultsName)), "Not measured") {
		t.Errorf("report: %v", err)
	}
	page := filepath.Join(dir, "page.md")
	for text, want := range map[string]string{
		"kept\n<!-- figures: machine -->\nstale\n<!-- end -->\n": "revision abc",
		"<!-- figures: typo -->\n<!-- end -->\n":                 "",
	} {
		err := fill(page, text, map[string]string{"machine": provenance(r)})
		if (err == nil) != (want != "") {
			t.Errorf("fill %q: %v", text, err)
		}
		if err == nil && (!strings.Contains(contents(t, page), want) || strings.Contains(contents(t, page), "stale") || !strings.Contains(contents(t, page), "kept")) {
			t.Errorf("the page is %q", contents(t, page))
		}
	}
}

// Every comparison names a scenario, candidates and a metric that exist.
func TestComparisonsAreMeasured(t *testing.T) {
	chosen := compared()
	for _, c := range comparisons {
		i := slices.IndexFunc(chosen, func(s Scenario) bool { return s.Name == c.scenario })
		if i < 0 || metrics[c.metric] == "" {
			t.Errorf("%s: no scenario %s or metric %s", c.what, c.scenario, c.metric)
			continue
		}
		for _, candidate := range columns {
			if !slices.Contains(chosen[i].Candidates, candidate) {
				t.Errorf("%s does not measure %s", c.scenario, candidate)
			}
		}
	}
}

func TestComparisonTable(t *testing.T) {
	stock, ours := &Row{Scenario: burst110, Candidate: kubelet}, &Row{Scenario: burst110, Candidate: dropIn}
	stock.add(Metrics{"last": 3000, "calls": 3, "waiting": 1, "server": 200})
	ours.add(Metrics{"last": 300})
	r := &Results{Rows: []*Row{stock, ours}}
	want := "| 110 pods change at once: last event (ms) | 3000 |  | 300 |\n"
	if got := comparisonTable(r); !strings.Contains(got, want) {
		t.Errorf("table lacks %q:\n%s", want, got)
	}
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 3: "3", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 54321: "54321", 654321: "654 k"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
	for want, values := range map[Figure][]float64{{2, 1, 9}: {9, 1, 2}, {2.5, 1, 4}: {4, 1, 2, 3}, {12350, 12350, 12350}: {12345.6}} {
		r := new(Row)
		for _, v := range values {
			r.add(Metrics{"last": v})
		}
		if r.Metrics["last"] != want || r.Runs != len(values) {
			t.Errorf("%v has %+v of %d runs, want %v", values, r.Metrics["last"], r.Runs, want)
		}
	}
}
