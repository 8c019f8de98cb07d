package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Every figure is of a scenario that exists, and every scenario yields a figure.
func TestFiguresAreMeasured(t *testing.T) {
	measured := make(map[string]bool)
	for _, s := range scenarios() {
		if measured[s.Name] || len(s.Candidates) == 0 {
			t.Errorf("%s is there twice, or no table has it", s.Name)
		}
		measured[s.Name] = true
	}
	for _, c := range comparisons {
		if !measured[c.scenario] {
			t.Errorf("%q names the unknown scenario %s", c.what, c.scenario)
		}
	}
	for _, target := range targets {
		if !measured[target.measured.scenario] || !measured[target.against.scenario] {
			t.Errorf("target %q names an unknown scenario", target.what)
		}
	}
}

func TestChoose(t *testing.T) {
	for patterns, want := range map[string]int{"": len(scenarios()), "hung": 3, "burst/*/*/pods=1000 idle/pods=110": 2} {
		if got, err := choose(strings.Fields(patterns)); err != nil || len(got) != want {
			t.Errorf("%q: %d scenarios, %v; want %d", patterns, len(got), err, want)
		}
	}
	if _, err := choose([]string{"idle", "brust"}); err == nil || !strings.Contains(err.Error(), `no scenario matches "brust"`) {
		t.Errorf("an unknown pattern: %v", err)
	}
	if got := compared(); len(got) != len(comparisons) || len(got[0].Candidates) != len(columns) {
		t.Errorf("%d scenarios are compared, the first with %v", len(got), got[0].Candidates)
	}
}

// newTestBench measures kubelet and drop-in in one scenario.
func newTestBench(t *testing.T, runs int, measure func(context.Context, *bench, Candidate) (Metrics, error)) *bench {
	return &bench{
		settings: settings{runs: runs, out: t.TempDir()}, progress: io.Discard, revision: "now",
		scenarios: []Scenario{{Name: "hung/pods=0", Candidates: []Candidate{kubelet, dropIn}, Measure: measure}},
	}
}

func TestCandidatesTakeTurns(t *testing.T) {
	var order []Candidate
	b := newTestBench(t, 2, func(_ context.Context, _ *bench, c Candidate) (Metrics, error) {
		order = append(order, c)
		return Metrics{"last": float64(len(order))}, nil
	})
	r := new(Results)
	kit.Must(t, b.run(t.Context(), r))
	if want := []Candidate{kubelet, dropIn, kubelet, dropIn}; !slices.Equal(order, want) {
		t.Errorf("order is %v, want %v", order, want)
	}
	saved, err := readResults(b.out)
	if err != nil || saved.Machine != r.Machine || len(saved.Rows) != 2 {
		t.Fatalf("%+v was saved, %v", saved, err)
	}
	if got, ok := saved.figure("hung/pods=0", dropIn, "last"); !ok || got != (Figure{3, 2, 4}) {
		t.Errorf("median of 2 and 4 = %v", got)
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
		"measured":    {want: "hung/pods=0 kubelet now, hung/pods=0 drop-in now"},
		"failed":      {failure: boom, want: "hung/pods=0 events-2 before", err: "scenario hung/pods=0, candidate drop-in: boom"},
		"interrupted": {cancelled: true, failure: boom, want: "hung/pods=0 events-2 before", err: "interrupted in scenario hung/pods=0"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		b := newTestBench(t, 1, func(_ context.Context, _ *bench, who Candidate) (Metrics, error) {
			if who != dropIn {
				return Metrics{"last": 1}, nil
			}
			if c.cancelled {
				cancel()
			}
			return Metrics{"last": 2}, c.failure
		})
		r := &Results{Rows: []*Row{
			{Scenario: "hung/pods=0", Candidate: "events-2", Revision: "before"},
			{Scenario: "idle/pods=110", Candidate: kubelet, Revision: "before"},
		}}
		if c.failure == nil {
			r.Rows = append(r.Rows, &Row{Scenario: "no longer there", Candidate: kubelet})
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
		want := append(strings.Split(c.want, ", "), "idle/pods=110 kubelet before") // in the order of the scenarios
		if !slices.Equal(rows, want) {
			t.Errorf("%s: results are %q, want %q", name, rows, want)
		}
	}
}

func TestVerifyWantsExactlyTheEvents(t *testing.T) {
	want := map[string]int{"ContainerDied": 2}
	for name, seen := range map[string]map[string]probe.Seen{
		"exactly":    {"ContainerDied": {Count: 2}},
		"too few":    {"ContainerDied": {Count: 1}},
		"too many":   {"ContainerDied": {Count: 3}},
		"none":       nil,
		"others too": {"ContainerDied": {Count: 2}, "PodSync": {Count: 1}},
	} {
		if err := verify(probe.Report{Seen: seen}, want); (err == nil) != (name == "exactly") {
			t.Errorf("%s: verify = %v", name, err)
		}
	}
}

func TestLimitIsListPlusStatusTimeDividedByCalls(t *testing.T) {
	const ms = time.Millisecond
	at := simruntime.Stats{PeakInFlight: 20, RPCs: map[string]simruntime.RPCStats{
		"ListContainers":   {Calls: 2, Time: 60 * ms},
		"ListPodSandbox":   {Calls: 2, Time: 36 * ms},
		"ContainerStatus":  {Calls: 100, Time: 1200 * ms},
		"PodSandboxStatus": {Calls: 100, Time: 400 * ms},
	}}
	for c, want := range map[Candidate]float64{
		kubelet: 1630, smallStep: 430, dropIn: 130, "pipeline-8": 130, "events-8": 130, "pipeline-16": 110,
	} {
		if got := limit(at, c); got != want {
			t.Errorf("limit of %s = %v, want %v", c, got, want)
		}
	}
}

func TestDelaysMatchEventsByContainer(t *testing.T) {
	changes := []probe.Arrival{{ID: "a", UnixNS: 1e6}, {ID: "b", UnixNS: 2e6}, {ID: "unseen", UnixNS: 3e6}}
	events := []probe.Arrival{
		{Type: "ContainerStarted", ID: "b", UnixNS: 12e6},
		{Type: "ContainerDied", ID: "a", UnixNS: 99e6},
		{Type: "ContainerStarted", ID: "a", UnixNS: 6e6},
	}
	if got := delays(changes, events); !slices.Equal(got, []float64{5, 10}) || median(got) != 7.5 || median(nil) != 0 {
		t.Errorf("delays = %v with the median %v, want [5 10]", got, median(got))
	}
}

func TestIdleNodeFailsCandidateWithOtherWork(t *testing.T) {
	if err := requireIdle(probe.Report{}, 0); err != nil {
		t.Error(err)
	}
	if requireIdle(probe.Report{Seen: map[string]probe.Seen{"PodSync": {Count: 1}}}, 0) == nil || requireIdle(probe.Report{}, 1) == nil {
		t.Error("an event or an inspection is no other work")
	}
	for _, tt := range []struct {
		c     Candidate
		lists int64
		ok    bool
	}{
		{"pipeline-16", 10, true}, {kubelet, 4, false}, {"events-16", 0, true}, {"events-16", 3, true}, {"events-16", 5, false},
	} {
		if err := requireLists(tt.c, tt.lists); (err == nil) != tt.ok {
			t.Errorf("%s with %d lists: %v", tt.c, tt.lists, err)
		}
	}
	r := probe.Report{Usage: probe.Usage{WallSeconds: 10, CPUSeconds: 0.5, Allocs: 600}}
	if m := idleMetrics(r, r.Usage.WallSeconds/60); m["client"] != 3000 || m["allocs"] != 3600 {
		t.Errorf("%v, want 3000 ms and 3600 allocations a minute", m)
	}
}

// A client follows the runtime through the changes that scenarios make.
func TestLab(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "github.com/pleg-pipeline/pleg-pipeline/bench/client")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := &bench{settings: settings{bin: bin}, temp: t.TempDir()}
	in := func(do func(context.Context, *lab) Metrics) {
		t.Helper()
		if _, err := inLab(10*time.Millisecond, 5*time.Second, false, do)(t.Context(), b, "pipeline-16"); err != nil {
			t.Error(err)
		}
	}
	in(func(ctx context.Context, l *lab) Metrics {
		m := burst{pods: 3, containers: 2, profile: "node", limit: 2, hung: 1}.measure(ctx, l)
		if at := l.runtime.Stats(); at.PeakInFlight != 2 || m["calls"] == 0 || 3*m["calls"] > float64(statusCalls(at))+0.1 || m["last"] <= 0 || m["limit"] != 0 {
			t.Errorf("the metrics are %v, and %d calls were in flight at once, want 2", m, at.PeakInFlight)
		}
		return m
	})
	in(func(ctx context.Context, l *lab) Metrics {
		l.populate(ctx, 3, 1)
		if made := l.replace(ctx, 3, 1000); len(made) != 3 || made[0].ID == made[1].ID || made[0].UnixNS == 0 {
			t.Errorf("the new containers are %+v", made)
		}
		return nil
	})
}
