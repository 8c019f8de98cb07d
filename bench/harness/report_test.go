package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func contents(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	kit.Must(t, err)
	return string(data)
}

// page returns the path of a copy of a page.
func page(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.md")
	kit.Must(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

// TestPageIsUpToDate renders the page again from the results, as make -C bench report does.
func TestPageIsUpToDate(t *testing.T) {
	const committed = "../../docs/dev/benchmarks.md"
	r, err := readResults("../results")
	kit.Must(t, err)
	again := page(t, contents(t, committed))
	if err := report(r, again); err != nil || contents(t, again) != contents(t, committed) {
		t.Errorf("%s is not up to date: %v", committed, err)
	}
}

func TestReportOfResults(t *testing.T) {
	r := new(Results)
	for i, c := range []Candidate{kubelet, dropIn, "pipeline-16"} {
		row := &Row{Scenario: burst110, Candidate: c, Revision: "abc"}
		row.add(Metrics{"last": 3600 / float64(i+1), "limit": 1100})
		row.add(Metrics{"last": 3700 / float64(i+1), "limit": 1100})
		r.Rows = append(r.Rows, row)
	}
	file := page(t, "kept\n<!-- figures: machine -->\nstale\n<!-- end -->\n<!-- figures: targets -->\n<!-- end -->\n<!-- figures: upstream -->\n<!-- end -->\n")
	kit.Must(t, report(r, file))
	text := contents(t, file)
	for _, want := range []string{
		"kept\n", "revision abc", "| **0.333, missed** |", "| **1.11, missed** |", "| not measured |", "last event (ms) | 3650 |  | 1825 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "stale") {
		t.Errorf("the page keeps what it had:\n%s", text)
	}
	if err := report(r, page(t, "<!-- figures: typo -->\n<!-- end -->\n")); err == nil || !strings.Contains(err.Error(), `"typo"`) {
		t.Errorf("an unknown part: %v", err)
	}
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 3: "3", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 54321: "54321"} {
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
