package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestScenarioNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios() {
		if seen[s.Name] {
			t.Errorf("two scenarios are called %s", s.Name)
		}
		seen[s.Name] = true
	}
	for _, target := range targets {
		if !seen[target.scenario] || target.reference != "" && !seen[target.reference] {
			t.Errorf("figure to reach %q names a scenario that does not exist", target.what)
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

func TestNewBenchSaysWhatIsMissing(t *testing.T) {
	if _, err := newBench(nil, 0, "", t.TempDir()); err == nil || !strings.Contains(err.Error(), "--runs is 0") {
		t.Errorf("no runs: %v", err)
	}
	if _, err := newBench(nil, 1, "", t.TempDir()); err == nil || !strings.Contains(err.Error(), "node is missing") {
		t.Errorf("no programs: %v", err)
	}
}

func TestCandidatesTakeTurns(t *testing.T) {
	var order []Candidate
	b := &bench{runs: 2, progress: io.Discard, scenarios: []Scenario{{
		Name: "s", Candidates: []Candidate{serial, kubelet},
		Measure: func(_ context.Context, _ *bench, c Candidate) (Metrics, error) {
			order = append(order, c)
			return Metrics{"last": float64(len(order))}, nil
		},
	}}}
	r, err := b.run(t.Context())
	if err != nil || r.Partial != "" {
		t.Fatalf("run = %q, %v", r.Partial, err)
	}
	if want := []Candidate{serial, kubelet, serial, kubelet}; !slices.Equal(order, want) {
		t.Errorf("order is %v, want %v", order, want)
	}
	if got, ok := r.outcome("s").median(kubelet, "last"); !ok || got != 3 {
		t.Errorf("median of 2 and 4 = %v, %t", got, ok)
	}
}

func TestRunKeepsWhatItHas(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		fail    func(cancel func()) error
		partial string
	}{
		"failed":      {func(func()) error { return boom }, "scenario s, candidate kubelet: boom"},
		"interrupted": {func(cancel func()) error { cancel(); return context.Canceled }, "interrupted in scenario s"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bench{runs: 1, progress: io.Discard, scenarios: []Scenario{{
			Name: "s", Candidates: []Candidate{serial, kubelet},
			Measure: func(_ context.Context, _ *bench, who Candidate) (Metrics, error) {
				if who == kubelet {
					return nil, c.fail(cancel)
				}
				return Metrics{"last": 1}, nil
			},
		}}}
		r, err := b.run(ctx)
		cancel()
		if err == nil || r.Partial != c.partial {
			t.Errorf("%s: partial is %q with error %v, want %q", name, r.Partial, err, c.partial)
		}
		if _, ok := r.outcome("s").median(serial, "last"); !ok {
			t.Errorf("%s: what was measured before is lost", name)
		}
	}
}

func TestChildThatEndsIsExplained(t *testing.T) {
	c, err := start[struct{}, said](t.Context(), "/bin/sh", "-c", "echo no such socket >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ask(struct{}{}); err == nil || !strings.Contains(err.Error(), "no such socket") {
		t.Errorf("ask = %v, want what the child said", err)
	}
}

func TestChildAnswers(t *testing.T) {
	c, err := start[struct{}, said](t.Context(), "/bin/sh", "-c", `read a; echo '{"err":""}'; read b; echo '{"err":"boom"}'; read c`)
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	if _, err := c.ask(struct{}{}); err != nil {
		t.Errorf("good answer: %v", err)
	}
	if _, err := c.ask(struct{}{}); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("answer that failed: %v", err)
	}
}

type said struct{ Err string }

func (s said) Failure() string { return s.Err }
