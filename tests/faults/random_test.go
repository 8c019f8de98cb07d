package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sourcegraph/conc/pool"

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
			s := drawScenario(seed)
			synctest.Test(t, func(t *testing.T) { runInBubble(t, s, healthyOrNot) })
			if t.Failed() {
				t.Logf("to repeat: go test ./tests/faults -run TestRandomFaults -faults.seed %d\n%+v", seed, s)
			}
		})
	}
}

// drawScenario draws the faults, at least one of them of a call that is made, and
// how the pipeline learns of changes.
func drawScenario(seed uint64) scenario {
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
	faults := drawFaults(seed, churnEnd*time.Second, patterns)
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

// socketUnit is the unit on the real clock: an inspection must end in three of them, also
// on a machine that has much else to do.
const socketUnit = 100 * time.Millisecond

// TestFaultsOverSocket runs a part of the matrix, each kind at random, on a real
// unix socket in real time.
func TestFaultsOverSocket(t *testing.T) {
	seen := make(map[string]bool)
	// These tests mostly wait, so more of them run at once than t.Parallel allows.
	group := pool.New().WithMaxGoroutines(12)
	defer group.Wait()
	for n, r := range rows() {
		key := r.RPC + kind(r.Fault)
		if seen[key] || r.RPC == "Version" {
			continue
		}
		seen[key] = true
		fit := r.modes()
		s := scenario{seed: uint64(n), pods: 3, containers: 2, rate: 3, mode: fit[len(seen)%len(fit)]}
		fault := r.at(random, socketUnit)
		fault.From, fault.Until = 0, 0 // independent of the machine's speed
		s.faults = []simruntime.Fault{fault}
		group.Go(func() {
			t.Run(fmt.Sprintf("%s/%s/random/%v", r.RPC, r.name(), s.mode), func(t *testing.T) { runOverSocket(t, s) })
		})
	}
}

func runOverSocket(t *testing.T, s scenario) {
	t.Helper()
	f := newFixture(t, s, socketUnit, func() net.Listener {
		listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "cri.sock"))
		if err != nil {
			t.Fatal(err)
		}
		return listener
	})
	f.play()
	f.waitForCache(time.Minute)
	time.Sleep(5 * socketUnit) // the cache is written before its events are sent
	f.waitForCache(time.Minute)
	p := promised(s)
	p.All = false // the first changes may come before the stream
	f.RequirePromises(p)
}

// waitForCache waits until the cache is right and the pipeline healthy. Both need
// a list and inspections within their timeouts, which on a busy machine may take
// several tries; and a moment later the pipeline may be late, and unhealthy, again.
func (f *fixture) waitForCache(patience time.Duration) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for {
		asked := time.Now()
		for uid := range f.History.Pods() {
			if _, err := f.Cache().GetNewerThan(ctx, uid, asked); err != nil && ctx.Err() != nil {
				f.t.Errorf("pod %s has no newer status within %v: %v", uid, patience, err)
			}
		}
		diff := f.cacheDiff()
		if ok, _ := f.Healthy(); ok && diff == "" {
			return
		}
		if ctx.Err() != nil {
			f.t.Errorf("%v after the end the pipeline is unhealthy or the cache wrong:\n%s", patience, diff)
			return
		}
	}
}
