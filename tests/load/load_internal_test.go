package load

import (
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFit(t *testing.T) {
	at := []time.Duration{0, time.Hour, 2 * time.Hour, 3 * time.Hour}
	for name, test := range map[string]struct {
		values        []float64
		slope, stdErr float64
	}{
		"a line": {[]float64{1, 3, 5, 7}, 2, 0},
		// By hand: the residuals are -.42 .96 -.66 .12, the sum of their squares 1.548.
		"with noise": {[]float64{0, 2, 1, 2.4}, 0.62, math.Sqrt(1.548 / 2 / 5)},
		"two points": {[]float64{1, 2}, 0, 0},
	} {
		slope, stdErr := fit(at[:len(test.values)], test.values)
		if math.Abs(slope-test.slope) > 1e-9 || math.Abs(stdErr-test.stdErr) > 1e-9 {
			t.Errorf("%s: got %v ± %v, want %v ± %v", name, slope, stdErr, test.slope, test.stdErr)
		}
	}
}

// A figure exceeds its bound only if noise is not enough to explain it.
func TestFiguresExceed(t *testing.T) {
	for name, test := range map[string]struct {
		mib      func(i int) float64
		samples  int
		exceeded bool
	}{
		"level":                 {func(int) float64 { return 5 }, 20, false},
		"noise":                 {func(i int) float64 { return 5 + float64(i*i%7) }, 20, false},
		"grows":                 {func(i int) float64 { return float64(i) + float64(i*i%7)/10 }, 20, true},
		"grew in the beginning": {func(i int) float64 { return float64(min(i, 10)) }, 20, false},
		"too few samples":       {func(i int) float64 { return float64(i) }, 18, false},
		"just enough":           {func(i int) float64 { return float64(i) }, 19, true},
	} {
		samples := make([]sample, test.samples)
		for i := range samples {
			samples[i] = sample{time.Duration(i) * time.Second, map[string]float64{"go_gc_heap_live_bytes": test.mib(i) * (1 << 20)}}
		}
		if got := figures(samples)[0]; got.exceeded != test.exceeded {
			t.Errorf("%s: %+v, want exceeded %v", name, got, test.exceeded)
		}
	}
}

// A soak whose heap grows fails.
func TestReportFails(t *testing.T) {
	for _, growth := range []float64{0, 1 << 20} {
		d := &Daemon{Name: "polling"}
		s := &soak{Run: NewRun("soak", io.Discard), daemons: []*Daemon{d}, samples: make(map[*Daemon][]sample)}
		for i := range 20 {
			s.samples[d] = append(s.samples[d], sample{time.Duration(i) * time.Second, map[string]float64{"go_gc_heap_live_bytes": growth * float64(i)}})
		}
		s.report(io.Discard, false)
		if got := s.Problems(); len(got) > 0 != (growth > 0) {
			t.Errorf("growth of %v bytes a second: problems %q", growth, got)
		}
	}
}

func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics(strings.NewReader("# HELP a b\na{x=\"1 2\"} 1\na{x=\"3\"} 2.5e+06\nb 7\n"))
	if err != nil || len(got) != 2 || got["a"] != 2500001 || got["b"] != 7 {
		t.Errorf("parseMetrics() = %v, %v", got, err)
	}
	if _, err := parseMetrics(strings.NewReader("a x\n")); err == nil {
		t.Error("no error for a metric that has no number")
	}
}

func TestNumbers(t *testing.T) {
	event := func(seq uint64) pleg.Event { return pleg.Event{Seq: seq, Type: pleg.ContainerDied, PodUID: "p"} }
	mark := func(seq uint64) pleg.Event { return pleg.Event{Seq: seq, Type: pleg.Bookmark} }
	missed := pleg.Event{Seq: 9, Type: pleg.PodSync, PodUID: "p", Missed: 2}
	gap := pleg.Event{Type: pleg.Gap}
	replayed := event(3)
	replayed.Replayed = true
	for name, test := range map[string]struct {
		events         []pleg.Event
		lost, repeated uint64
		told           int
	}{
		"all":                     {[]pleg.Event{mark(4), event(5), event(6), mark(6), event(7)}, 0, 0, 0},
		"one is lost":             {[]pleg.Event{mark(4), event(5), event(7)}, 1, 0, 0},
		"the first is lost":       {[]pleg.Event{mark(4), event(6)}, 1, 0, 0},
		"a mark shows two":        {[]pleg.Event{event(5), mark(7), event(8)}, 2, 0, 0},
		"one comes twice":         {[]pleg.Event{event(5), event(6), event(6)}, 0, 1, 0},
		"a PodSync tells":         {[]pleg.Event{event(5), missed, event(10)}, 0, 0, 1},
		"a Gap tells":             {[]pleg.Event{event(5), gap, replayed, mark(20), event(21)}, 0, 0, 1},
		"lost after a Gap":        {[]pleg.Event{event(5), gap, replayed, mark(20), event(22)}, 1, 0, 1},
		"a Gap to another number": {[]pleg.Event{event(500), gap, mark(2), event(3)}, 0, 0, 1},
	} {
		var n Numbers
		for _, ev := range test.events {
			n.Add(ev)
		}
		if n.Lost != test.lost || n.Repeated != test.repeated || n.Told != test.told {
			t.Errorf("%s: %+v, want %+v", name, n, test)
		}
	}
}
