package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestScenariosHaveUniqueNamesAndKnownGroups(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios() {
		if seen[s.Name] {
			t.Errorf("two scenarios have the name %s", s.Name)
		}
		seen[s.Name] = true
	}
	for _, target := range targets {
		for _, f := range []figure{target.measured, target.against} {
			if f.candidate != "" && !seen[f.scenario] {
				t.Errorf("target %q names the unknown scenario %s", target.what, f.scenario)
			}
		}
	}
	for _, s := range scenarios() {
		if !strings.Contains(template, "<!-- figures: "+s.group()+" -->") {
			t.Errorf("the results have no section for %s", s.Name)
		}
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name                 string
		set                  string
		patterns, candidates []string
		least                int
		err                  string
	}{
		{name: "quick set", set: "quick", least: 10},
		{name: "full set", set: "full", least: 40},
		{name: "by group", set: "quick", patterns: []string{"hung"}, least: 3},
		{name: "by pattern", set: "quick", patterns: []string{"burst/*/*/pods=10"}, least: 9},
		{name: "by name", set: "quick", patterns: []string{"idle/pods=110"}, least: 1},
		{name: "unknown set", set: "fast", err: `unknown set "fast"`},
		{name: "unknown scenario", set: "quick", patterns: []string{"idle", "brust"}, err: `no scenario matches "brust"`},
		{name: "unknown candidate", set: "quick", candidates: []string{"parallel"}, err: `unknown candidate "parallel"`},
	} {
		got, err := choose(c.set, c.patterns, c.candidates)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: choose = %v, want an error with %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil || len(got) < c.least {
			t.Errorf("%s: choose = %d scenarios, %v; want at least %d", c.name, len(got), err, c.least)
		}
	}
}

func TestNewBenchReportsMissingProgram(t *testing.T) {
	for runs, want := range []string{"--runs is 0", "node is missing"} {
		if _, err := newBench(nil, runs, "", t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d runs: %v, want %q", runs, err, want)
		}
	}
}

// newTestBench measures serial and kubelet in a scenario s.
func newTestBench(runs int, measure func(context.Context, *bench, Candidate) (Metrics, error)) *bench {
	return &bench{
		runs: runs, progress: io.Discard, measured: func(*Results) error { return nil },
		scenarios: []Scenario{{Name: "s", Candidates: []Candidate{serial, kubelet}, Measure: measure}},
	}
}

func TestCandidatesTakeTurns(t *testing.T) {
	var order []Candidate
	saved := 0
	b := newTestBench(2, func(_ context.Context, _ *bench, c Candidate) (Metrics, error) {
		order = append(order, c)
		return Metrics{"last": float64(len(order))}, nil
	})
	b.measured = func(r *Results) error { saved = len(r.Scenarios); return nil }
	r, err := b.run(t.Context())
	if err != nil || r.Partial != "" {
		t.Fatalf("run = %q, %v", r.Partial, err)
	}
	if want := []Candidate{serial, kubelet, serial, kubelet}; !slices.Equal(order, want) {
		t.Errorf("order is %v, want %v", order, want)
	}
	if got := r.outcome("s").figure(kubelet, "last"); got == nil || got.Median != 3 {
		t.Errorf("median of 2 and 4 = %v", got)
	}
	if saved != 1 {
		t.Errorf("%d scenarios were saved, want 1", saved)
	}
}

func row(c Candidate, values ...float64) *Row {
	return &Row{Candidate: c, Metrics: map[string]*Figure{"last": {Values: values}}}
}

func TestResumeSkipsCompleteScenarios(t *testing.T) {
	now, before := Version{Programs: "now"}, Version{Programs: "before"}
	earlier := &Results{Machine: thisMachine(), Scenarios: []*Outcome{
		{Name: "complete", Of: now, Rows: []*Row{row(serial, 1, 2), row(kubelet, 1, 2)}},
		{Name: "of other programs", Of: before, Rows: []*Row{row(serial, 1, 2), row(kubelet, 1, 2)}},
		{Name: "with one run too few", Of: now, Rows: []*Row{row(serial, 1, 2), row(kubelet, 1)}},
		{Name: "without a candidate", Of: now, Rows: []*Row{row(serial, 1, 2)}},
	}}
	b := &bench{runs: 2, version: now, progress: io.Discard}
	for _, o := range append(earlier.Scenarios, &Outcome{Name: "not measured"}) {
		b.scenarios = append(b.scenarios, Scenario{Name: o.Name, Candidates: []Candidate{serial, kubelet}})
	}
	b.skip(earlier)
	var left []string
	for _, s := range b.scenarios {
		left = append(left, s.Name)
	}
	if want := []string{"of other programs", "with one run too few", "without a candidate", "not measured"}; !slices.Equal(left, want) {
		t.Errorf("scenarios to measure are %v, want %v", left, want)
	}
	earlier.Machine.Kernel = "another"
	b.scenarios = []Scenario{{Name: "complete", Candidates: []Candidate{serial, kubelet}}}
	if b.skip(earlier); len(b.scenarios) != 1 {
		t.Error("results of another machine count as measured")
	}
}

func TestWithKeepsEarlierResults(t *testing.T) {
	now, before := Version{Programs: "now"}, Version{Programs: "before"}
	r := &Results{Scenarios: []*Outcome{
		{Name: "idle/pods=5000", Of: now, Rows: []*Row{row(serial, 1), row(kubelet, 1, 2)}},
		{Name: "restart/n=1", Of: now},
		{Name: "restart/n=2", Of: now, Rows: []*Row{row(kubelet, 7)}},
	}}
	both := r.with(&Results{Steps: []Step{{Name: "s"}}, Scenarios: []*Outcome{
		{Name: "hung/pods=9", Of: now, Rows: []*Row{row(serial, 1)}},
		{Name: "restart/n=2", Of: before, Rows: []*Row{row(serial, 1)}},
		{Name: "restart/n=1", Of: now, Rows: []*Row{row(serial, 1)}},
		{Name: "idle/pods=5000", Of: now, Rows: []*Row{row(serial, 8, 9), row(kubelet, 8), row("fixed-2", 8)}},
	}})
	var got []string
	for _, o := range both.Scenarios {
		for _, row := range o.Rows {
			got = append(got, fmt.Sprint(o.Name, " ", row.Candidate, " ", row.Metrics["last"].Values))
		}
	}
	want := []string{
		"restart/n=1 serial [1]",  // nothing of it was measured now
		"restart/n=2 kubelet [7]", // the earlier is of other programs
		"idle/pods=5000 serial [8 9]", "idle/pods=5000 kubelet [1 2]", "idle/pods=5000 fixed-2 [8]",
	}
	if !slices.Equal(got, want) || len(both.Steps) != 1 {
		t.Errorf("results have %q and %d steps, want %q", got, len(both.Steps), want)
	}
	if len(r.Scenarios) != 3 || len(r.Scenarios[0].Rows) != 2 {
		t.Error("with has changed its receiver")
	}
}

func TestWriteReplacesResults(t *testing.T) {
	dir := t.TempDir()
	for n := range 2 {
		if err := (&Results{Runs: n}).write(dir); err != nil {
			t.Fatal(err)
		}
	}
	r, err := readResults(dir)
	if err != nil || r.Runs != 1 {
		t.Errorf("read %+v, %v", r, err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 {
		t.Errorf("files are %v, want one", files)
	}
}

func TestVersionIsThatOfTheMeasuredPrograms(t *testing.T) {
	bin := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := versionOf(t.TempDir(), bin)
		if err != nil || v.Revision != "" {
			t.Fatalf("versionOf = %v, %v; want no revision outside a repository", v, err)
		}
		return v.Programs
	}
	one := write("node", "a")
	if same := write("containerd", "x"); same != one {
		t.Errorf("version %s, want %s: containerd is not measured", same, one)
	}
	if other := write("client", "b"); other == one {
		t.Error("another client has the same version")
	}
}

func TestSideBySideMeasuresAtTheSameTime(t *testing.T) {
	var all sync.WaitGroup
	all.Add(2)
	b := newTestBench(1, func(_ context.Context, _ *bench, c Candidate) (Metrics, error) {
		all.Done()
		all.Wait() // blocks if they take turns
		return Metrics{"last": map[Candidate]float64{serial: 1, kubelet: 2}[c]}, nil
	})
	b.scenarios[0].SideBySide = true
	r, err := b.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range map[Candidate]float64{serial: 1, kubelet: 2} {
		if got := r.outcome("s").figure(c, "last"); got == nil || got.Median != want {
			t.Errorf("%s = %v, want %v", c, got, want)
		}
	}
}

func TestInterruptedRunKeepsResults(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		cancelled    bool
		failed, lost error
		partial      string
	}{
		"failed":      {failed: boom, partial: "scenario s, candidate kubelet: boom"},
		"interrupted": {cancelled: true, failed: boom, partial: "interrupted in scenario s"},
		"not saved":   {lost: boom, partial: "ended after scenario s"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		b := newTestBench(1, func(_ context.Context, _ *bench, who Candidate) (Metrics, error) {
			if who != kubelet {
				return Metrics{"last": 1}, nil
			}
			if c.cancelled {
				cancel()
			}
			return nil, c.failed
		})
		b.measured = func(*Results) error { return c.lost }
		r, err := b.run(ctx)
		cancel()
		if err == nil || !c.cancelled && !errors.Is(err, boom) || r.Partial != c.partial {
			t.Errorf("%s: partial is %q with error %v, want %q", name, r.Partial, err, c.partial)
		}
		if r.outcome("s").figure(serial, "last") == nil {
			t.Errorf("%s: earlier measurements are missing", name)
		}
	}
}

func TestAskReportsFailureAndErrorOutputOfChild(t *testing.T) {
	c, err := start[struct{}, answer](t.Context(), "/bin/sh", "-c",
		`read a; echo '{"err":""}'; read b; echo '{"err":"boom"}'; read c; echo no such socket >&2; exit 3`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ask(struct{}{}); err != nil {
		t.Errorf("good answer: %v", err)
	}
	for _, want := range []string{"boom", "no such socket"} {
		if _, err := c.ask(struct{}{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ask = %v, want an error with %q", err, want)
		}
	}
}

type answer struct{ Err string }

func (s answer) Failure() string { return s.Err }
