package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/bench/node"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestScenariosHaveUniqueNamesAndKnownGroups(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios() {
		if seen[s.Name] {
			t.Errorf("two scenarios have the name %s", s.Name)
		}
		seen[s.Name] = true
		if shown[s.group()] == nil || !strings.Contains(template, "<!-- figures: "+s.group()+" -->") {
			t.Errorf("the results have no section for %s", s.Name)
		}
	}
	for _, target := range targets {
		for _, f := range []figure{target.measured, target.against} {
			if f.candidate != "" && !seen[f.scenario] {
				t.Errorf("target %q names the unknown scenario %s", target.what, f.scenario)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		set, patterns string
		want          int
		err           string
	}{
		{"full", "", len(scenarios()), ""},
		{"quick", "hung", 3, ""},
		{"quick", "burst/*/*/pods=10 idle/pods=110", 4, ""},
		{"fast", "", 0, `unknown set "fast"`},
		{"quick", "idle brust", 0, `no scenario matches "brust"`},
	} {
		got, err := choose(c.set, strings.Fields(c.patterns))
		if len(got) != c.want || (err != nil || c.err != "") && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s %s: %d scenarios, %v; want %d, %q", c.set, c.patterns, len(got), err, c.want, c.err)
		}
	}
	if quick, err := choose("quick", nil); err != nil || len(quick) < 10 || len(quick) == len(scenarios()) {
		t.Errorf("the quick set has %d scenarios, %v", len(quick), err)
	}
	if _, err := newBench(nil, settings{}); err == nil || !strings.Contains(err.Error(), "-runs is 0") {
		t.Errorf("no runs: %v", err)
	}
}

// newTestBench measures serial and kubelet in one scenario.
func newTestBench(t *testing.T, runs int, measure func(context.Context, *bench, Candidate) (Metrics, error)) *bench {
	return &bench{
		settings: settings{runs: runs, out: t.TempDir()}, progress: io.Discard, revision: "now",
		scenarios: []Scenario{{Name: "hung/pods=0", Candidates: []Candidate{serial, kubelet}, Measure: measure}},
	}
}

func TestCandidatesTakeTurns(t *testing.T) {
	var order []Candidate
	b := newTestBench(t, 2, func(_ context.Context, _ *bench, c Candidate) (Metrics, error) {
		order = append(order, c)
		return Metrics{"last": float64(len(order))}, nil
	})
	r := new(Results)
	if err := b.run(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if want := []Candidate{serial, kubelet, serial, kubelet}; !slices.Equal(order, want) {
		t.Errorf("order is %v, want %v", order, want)
	}
	saved, err := readResults(b.out)
	if err != nil || saved.Machine != r.Machine || len(saved.Rows) != 2 {
		t.Fatalf("%+v was saved, %v", saved, err)
	}
	if got, ok := saved.figure("hung/pods=0", kubelet, "last"); !ok || got != (Figure{3, 2, 4}) {
		t.Errorf("median of 2 and 4 = %v", got)
	}
	if raw := contents(t, filepath.Join(b.out, rawFile)); strings.Count(raw, "\n") != 4 || !strings.Contains(raw, `"last":4`) {
		t.Errorf("raw measurements are %s", raw)
	}
}

// TestEarlierResultsStay measures one scenario, which may fail.
func TestEarlierResultsStay(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		cancelled bool
		failure   error
		want      string // the measured one
		err       string
	}{
		"measured":    {want: "hung/pods=0 serial now, hung/pods=0 kubelet now"},
		"failed":      {failure: boom, want: "hung/pods=0 events-2 before", err: "scenario hung/pods=0, candidate kubelet: boom"},
		"interrupted": {cancelled: true, failure: boom, want: "hung/pods=0 events-2 before", err: "interrupted in scenario hung/pods=0"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		b := newTestBench(t, 1, func(_ context.Context, _ *bench, who Candidate) (Metrics, error) {
			if who != kubelet {
				return Metrics{"last": 1}, nil
			}
			if c.cancelled {
				cancel()
			}
			return Metrics{"last": 2}, c.failure
		})
		r := &Results{Rows: []*Row{
			{Scenario: "idle/pods=110", Candidate: serial, Revision: "before"},
			{Scenario: "hung/pods=0", Candidate: "events-2", Revision: "before"},
		}}
		if c.failure == nil {
			r.Rows = append(r.Rows, &Row{Scenario: "no longer there", Candidate: serial})
		}
		err := b.run(ctx, r)
		cancel()
		if (err != nil || c.err != "") && (err == nil || err.Error() != c.err) {
			t.Errorf("%s: %v, want %s", name, err, c.err)
		}
		var rows []string
		for _, row := range r.Rows {
			rows = append(rows, fmt.Sprintf("%s %s %s", row.Scenario, row.Candidate, row.Revision))
		}
		slices.Sort(rows)
		want := append(strings.Split(c.want, ", "), "idle/pods=110 serial before")
		if slices.Sort(want); !slices.Equal(rows, want) {
			t.Errorf("%s: results are %q, want %q", name, rows, want)
		}
	}
}

func TestVerifyWantsExactlyTheEvents(t *testing.T) {
	want := map[string]int{"ContainerDied": 2}
	for name, seen := range map[string]map[string]control.Seen{
		"exactly":    {"ContainerDied": {Count: 2}},
		"too few":    {"ContainerDied": {Count: 1}},
		"too many":   {"ContainerDied": {Count: 3}},
		"none":       nil,
		"others too": {"ContainerDied": {Count: 2}, "PodSync": {Count: 1}},
	} {
		if err := verify(control.Report{Seen: seen}, want); (err == nil) != (name == "exactly") {
			t.Errorf("%s: verify = %v", name, err)
		}
	}
}

func TestLimitIsListPlusStatusTimeDividedByCalls(t *testing.T) {
	const ms = time.Millisecond
	at := node.Stats{Stats: simruntime.Stats{PeakInFlight: 20, RPCs: map[string]simruntime.RPCStats{
		"ListContainers":   {Calls: 2, Time: 60 * ms},
		"ListPodSandbox":   {Calls: 2, Time: 36 * ms},
		"ContainerStatus":  {Calls: 100, Time: 1200 * ms},
		"PodSandboxStatus": {Calls: 100, Time: 400 * ms},
	}}}
	for c, want := range map[Candidate]float64{
		serial: 1630, kubelet: 1630, kubeletEvents: 1630, smallStep: 430, dropIn: 130, "pipeline-16": 130, "events-16": 130, "pipeline-32": 110,
	} {
		if got := limit(at, c); got != want {
			t.Errorf("limit of %s = %v, want %v", c, got, want)
		}
	}
}

func TestDelaysMatchEventsByContainer(t *testing.T) {
	changes := []control.Arrival{{ID: "a", UnixNS: 1e6}, {ID: "b", UnixNS: 2e6}, {ID: "unseen", UnixNS: 3e6}}
	events := []control.Arrival{
		{Type: "ContainerStarted", ID: "b", UnixNS: 12e6},
		{Type: "ContainerDied", ID: "a", UnixNS: 99e6},
		{Type: "ContainerStarted", ID: "a", UnixNS: 6e6},
	}
	if got := delays(changes, events); !slices.Equal(got, []float64{5, 10}) {
		t.Errorf("delays = %v, want [5 10]", got)
	}
	sorted := make([]float64, 100)
	for i := range sorted {
		sorted[i] = float64(i + 1)
	}
	for p, want := range map[int]float64{1: 1, 50: 50, 99: 99, 100: 100} {
		if got := percentile(sorted, p); got != want || percentile(nil, p) != 0 {
			t.Errorf("percentile %d = %v, want %v", p, got, want)
		}
	}
}

func TestQuietNodeFailsCandidateWithOtherWork(t *testing.T) {
	usage := control.Usage{WallSeconds: 10, CPUSeconds: 0.5, Allocs: 600}
	for name, tt := range map[string]struct {
		c      Candidate
		lists  int64
		status int64
		seen   map[string]control.Seen
		ok     bool
	}{
		"relists":                {"pipeline-16", 10, 0, nil, true},
		"has stopped relisting":  {kubelet, 4, 0, nil, false},
		"has events":             {"events-16", 0, 0, nil, true},
		"relists less and less":  {"events-16", 3, 0, nil, true},
		"relists despite events": {"events-16", 5, 0, nil, false},
		"inspects":               {"events-16", 0, 1, nil, false},
		"delivers an event":      {serial, 10, 0, map[string]control.Seen{"PodSync": {Count: 1}}, false},
	} {
		at := node.Stats{CPUSeconds: 0.25, Stats: simruntime.Stats{RPCs: map[string]simruntime.RPCStats{
			"ListContainers": {Calls: tt.lists}, "ContainerStatus": {Calls: tt.status},
		}}}
		m, err := quietMetrics(tt.c, control.Report{Usage: usage, Seen: tt.seen}, at)
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "wrong work") {
			t.Errorf("%s: error %v, want ok %t", name, err, tt.ok)
		}
		if tt.ok && (m["client"] != 3000 || m["server"] != 1500 || m["allocs"] != 3600) {
			t.Errorf("%s: %v, want 3000 ms, 1500 ms and 3600 allocations a minute", name, m)
		}
	}
}
