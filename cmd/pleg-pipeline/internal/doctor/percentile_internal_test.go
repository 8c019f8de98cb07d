package doctor

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// TestPercentile: the nearest rank is the least measured value that the given part of all values
// does not exceed.
func TestPercentile(t *testing.T) {
	for _, test := range []struct {
		values  int
		percent float64
		want    float64
	}{
		{1, 50, 1},
		{1, 99, 1},
		{2, 50, 1},
		{2, 99, 2},
		{3, 50, 2},
		{4, 50, 2},
		{5, 50, 3},
		{99, 99, 99},
		{100, 99, 99},
		{101, 99, 100},
		{200, 99, 198},
		{201, 99, 199},
		{10, 100, 10},
	} {
		var sorted []float64
		for n := range test.values {
			sorted = append(sorted, float64(n+1))
		}
		if got := percentile(sorted, test.percent); got != test.want {
			t.Errorf("percentile %v of 1 to %d is %v, want %v", test.percent, test.values, got, test.want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for s, want := range map[float64]string{75.4: "1m15s", 60: "1m0s", 1.2345: "1.23s", 1: "1s", 0.0123456: "12.35ms", 0.001: "1ms", 0.0009876: "988µs", 0: "0s"} {
		if got := seconds(s); got != want {
			t.Errorf("%v s is %q, want %q", s, got, want)
		}
	}
}

func TestCounts(t *testing.T) {
	of := func(states ...pleg.State) (all []*pleg.ContainerStatus) {
		for _, s := range states {
			all = append(all, &pleg.ContainerStatus{State: s})
		}
		return all
	}
	var got Counts
	got.count([]cache.Entry{{}, {Last: &pleg.PodStatus{
		Sandboxes:  []*pleg.SandboxStatus{{Ready: true}, {}, {}},
		Containers: of(pleg.StateRunning, pleg.StateRunning, pleg.StateExited, pleg.StateExited, pleg.StateExited, pleg.StateCreated),
	}}})
	if want := (Counts{Pods: 2, Sandboxes: 3, Ready: 1, Containers: 6, Running: 2, Exited: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
