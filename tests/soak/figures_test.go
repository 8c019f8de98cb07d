package soak_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/tests/soak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFit(t *testing.T) {
	at := []time.Duration{0, time.Hour, 2 * time.Hour, 3 * time.Hour}
	got := soak.Fit(at, []float64{1, 3, 5, 7})
	if math.Abs(got.PerHour-2) > 1e-9 || got.StdErr > 1e-9 {
		t.Errorf("a line: %+v, want 2 an hour exactly", got)
	}
	// By hand: the residuals are -.42 .96 -.66 .12, the sum of their squares 1.548.
	got = soak.Fit(at, []float64{0, 2, 1, 2.4})
	if math.Abs(got.PerHour-0.62) > 1e-9 || math.Abs(got.StdErr-math.Sqrt(1.548/2/5)) > 1e-9 {
		t.Errorf("with noise: %+v, want .62 ± .393", got)
	}
	if got := soak.Fit(at[:2], []float64{1, 2}); got != (soak.Slope{}) {
		t.Errorf("two points: %+v, want nothing", got)
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
		heap := make([]float64, test.samples)
		for i := range heap {
			heap[i] = test.mib(i) * (1 << 20)
		}
		if got := soak.Figures(heap...)[0]; got.Exceeded != test.exceeded {
			t.Errorf("%s: %+v, want exceeded %v", name, got, test.exceeded)
		}
	}
}

func TestParseMetrics(t *testing.T) {
	got, err := soak.ParseMetrics(strings.NewReader("# HELP a b\na{x=\"1 2\"} 1\na{x=\"3\"} 2.5e+06\nb 7\n"))
	if err != nil || len(got) != 2 || got["a"] != 2500001 || got["b"] != 7 {
		t.Errorf("ParseMetrics() = %v, %v", got, err)
	}
	if _, err := soak.ParseMetrics(strings.NewReader("a x\n")); err == nil {
		t.Error("no error for a metric that has no number")
	}
}
