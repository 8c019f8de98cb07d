package faults_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// TestRandomFaults runs several faults at once, all drawn from the seed.
func TestRandomFaults(t *testing.T) {
	first, last := uint64(1), *randomSeeds
	if *randomSeed != 0 {
		first, last = *randomSeed, *randomSeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			s := drawScenario(t, seed)
			synctest.Test(t, func(t *testing.T) { runInBubble(t, s, healthyOrNot) })
			if t.Failed() {
				t.Logf("to repeat: go test ./tests/faults -run TestRandomFaults -faults.seed %d\n%+v", seed, s)
			}
		})
	}
}

// drawScenario draws the faults, at least one of them of a call that is made, and
// how the pipeline learns of changes.
func drawScenario(t *testing.T, seed uint64) scenario {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 9))
	m := modes[rng.IntN(len(modes))]
	m.unary = rng.IntN(3) == 0
	patterns := []string{"ContainerStatus/*/always"}
	for range rng.IntN(5) {
		patterns = append(patterns, "*/*/*")
	}
	calls := len(patterns)
	var panicking []string
	for _, method := range methods {
		if rng.IntN(4) == 0 {
			panicking = append(panicking, method)
			patterns = append(patterns, "ContainerStatus/hang/*")
		}
	}
	faults, err := simruntime.DrawFaults(seed, churnEnd*time.Second, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	for i, method := range panicking {
		faults[calls+i].RPC, faults[calls+i].Hang = method, false
	}
	return scenario{seed: seed, pods: 1 + rng.IntN(12), containers: 1 + rng.IntN(2), rate: 3, mode: m, faults: faults}
}

// regressions are mixes of faults each of which has found a bug.
var regressions = map[string]scenario{
	"late events": {seed: 4, pods: 3, containers: 2, rate: 3, faults: []simruntime.Fault{
		{RPC: "ContainerStatus", Times: 1, Latency: latency(1417), Until: 6246 * time.Millisecond},
		{RPC: "StreamContainers", Latency: latency(538), From: 1414 * time.Millisecond, Until: 5546 * time.Millisecond},
		{RPC: "GetContainerEvents", Latency: latency(1432), From: 846 * time.Millisecond, Until: 4407 * time.Millisecond},
	}},
	"no metadata": {seed: 5, pods: 3, containers: 2, rate: 3, faults: []simruntime.Fault{
		{RPC: "StreamContainers", Malform: simruntime.NilMetadata, Probability: 0.36, Seed: 2026640311, From: 5517 * time.Millisecond, Until: 8606 * time.Millisecond},
		{RPC: "StreamPodSandboxes", Malform: simruntime.NilMetadata, From: 3041 * time.Millisecond, Until: 5116 * time.Millisecond},
		{RPC: "ListContainers", Malform: simruntime.NilMetadata, Probability: 0.39, Seed: 3465407077, From: 1870 * time.Millisecond, Until: 3550 * time.Millisecond},
		{RPC: "ListPodSandbox", Malform: simruntime.NilMetadata, After: 4, Times: 1, Until: 8516 * time.Millisecond},
	}},
}

func latency(ms int) simruntime.Latency {
	return simruntime.Latency{P50: time.Duration(ms) * time.Millisecond}
}

func TestRegressions(t *testing.T) {
	for name, regression := range regressions {
		for _, m := range []mode{
			{events: pipeline.EventsOff}, {events: pipeline.EventsAuto}, {pipeline.EventsOff, true}, {pipeline.EventsAuto, true},
		} {
			t.Run(fmt.Sprintf("%s/%v/unary=%t", name, m, m.unary), func(t *testing.T) {
				t.Parallel()
				s := regression
				s.mode = m
				synctest.Test(t, func(t *testing.T) { runInBubble(t, s, healthyOrNot) })
			})
		}
	}
}
