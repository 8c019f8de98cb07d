package main

import (
	"io"
	"math"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
)

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
		d := &daemon.Daemon{Name: "polling"}
		s := &soak{Run: load.NewRun("soak", io.Discard), phase: newPhase(), daemons: []*daemon.Daemon{d}, samples: make(map[*daemon.Daemon][]sample)}
		for i := range 20 {
			s.samples[d] = append(s.samples[d], sample{time.Duration(i) * time.Second, map[string]float64{"go_gc_heap_live_bytes": growth * float64(i)}})
		}
		s.report(io.Discard, false)
		if got := s.Problems(); len(got) > 0 != (growth > 0) {
			t.Errorf("growth of %v bytes a second: problems %q", growth, got)
		}
	}
}
