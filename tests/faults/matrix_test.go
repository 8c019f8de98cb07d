// Package faults_test runs the pipeline on a simulated runtime that fails in every way
// that package simruntime can simulate, and checks that a fault costs nothing but time.
//
// In each case:
//
//   - after the faults have ended and the pods rest, the cache equals the runtime;
//   - the events of each container are in order, none is repeated, and the last one
//     agrees with the container; none is missing if the pipeline follows CRI events
//     and the fault does not affect them;
//   - GetNewerThan returns, with nothing older than its call;
//   - Healthy is false while no list can succeed, and true in the end;
//   - nothing panics and no goroutine leaks.
//
// Two faults look like the truth to the pipeline, so less is checked there. A list with a wrong id
// says that containers are gone. A container whose state the list does not know may be reported as
// started once more, as the kubelet does.
package faults_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

var (
	allFaults   = flag.Bool("faults.all", false, "run all of TestFaultMatrix: also faults at random, and each fault with and without events")
	randomSeed  = flag.Uint64("faults.seed", 0, "run TestRandomFaults with this seed only (0: many)")
	randomSeeds = flag.Uint64("faults.seeds", 10, "number of seeds of TestRandomFaults")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// A fault that is always or random holds from faultsFrom to faultsUntil, never at the moment of
	// a change; a fault that hits once may do so until the end of the churn.
	faultsFrom  = 2900 * time.Millisecond
	faultsUntil = 8900 * time.Millisecond
	// healthAt is when Healthy is called, shortly before the fault ends.
	healthAt = 8800 * time.Millisecond
	// rest is long enough for a list, and for what waits for a list.
	rest = 6 * time.Second
	// restAfterStream is the longest backoff of a stream, and the list after it.
	restAfterStream = 25 * time.Second
)

// TestFaultMatrix runs every call of the pipeline with every fault: once, always and at
// random, with and without events. "make test" runs each fault once with and always without
// events, or the other way round; "make faults" runs all.
func TestFaultMatrix(t *testing.T) {
	for n, r := range rows() {
		for w, when := range []string{once, always, random} {
			for i, m := range r.modes() {
				if !*allFaults && (when == random || len(r.modes()) > 1 && i != (n+w)%2) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s/%v", r.RPC, r.name(), when, m), func(t *testing.T) {
					t.Parallel()
					s := scenario{seed: uint64(n), pods: 3, containers: 2, rate: 2, mode: m, faults: []row{r.at(when)}}
					if when == once {
						s.churn = churnEndOfOnce
					}
					if s.run(t, r.healthy(when)) == 0 {
						t.Error("no call was spoiled: this tests nothing")
					}
				})
			}
		}
	}
}

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
			s.run(t, healthyOrNot)
			if t.Failed() {
				t.Logf("to repeat: go test ./tests/faults -run TestRandomFaults -faults.seed %d\n%+v", seed, s)
			}
		})
	}
}

// regressions are mixes of faults each of which has found a bug.
var regressions = map[string]scenario{
	"late events": {seed: 4, pods: 3, containers: 2, rate: 3, faults: []row{
		{simruntime.Fault{RPC: "ContainerStatus", Times: 1, Latency: latency(1417)}, 0, 6246 * time.Millisecond},
		{simruntime.Fault{RPC: "ListContainers", Latency: latency(538)}, 1414 * time.Millisecond, 5546 * time.Millisecond},
		{simruntime.Fault{RPC: "GetContainerEvents", Latency: latency(1432)}, 846 * time.Millisecond, 4407 * time.Millisecond},
	}},
	"no metadata": {seed: 5, pods: 3, containers: 2, rate: 3, faults: []row{
		{simruntime.Fault{RPC: "ListContainers", Malform: simruntime.NilMetadata, Probability: 0.39, Seed: 3465407077}, 1870 * time.Millisecond, 3550 * time.Millisecond},
		{simruntime.Fault{RPC: "ListPodSandbox", Malform: simruntime.NilMetadata, After: 4, Times: 1}, 0, 8516 * time.Millisecond},
	}},
	"a sandbox that only an event has shown, and no list by id": {seed: 39, pods: 8, containers: 2, rate: 3, faults: []row{
		{simruntime.Fault{RPC: "ListPodSandbox", Code: codes.ResourceExhausted}, 552 * time.Millisecond, 3895 * time.Millisecond},
		{simruntime.Fault{RPC: "ListContainers", Code: codes.ResourceExhausted, Probability: 0.27, Seed: 4266696077}, 1274 * time.Millisecond, 4548 * time.Millisecond},
	}},
}

func latency(ms int) time.Duration {
	return time.Duration(ms) * time.Millisecond
}

func TestRegressions(t *testing.T) {
	for name, regression := range regressions {
		for _, m := range modes {
			t.Run(fmt.Sprintf("%s/%v", name, m), func(t *testing.T) {
				t.Parallel()
				s := regression
				s.mode = m
				s.run(t, healthyOrNot)
			})
		}
	}
}

// health is what Healthy must return shortly before the faults end.
type health int

const (
	healthyOrNot health = iota
	healthy
	unhealthy
)

// run runs a scenario in a bubble and returns the number of spoiled calls.
func (s scenario) run(t *testing.T, want health) (spoiled int64) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, s)
		checked := make(chan struct{})
		go func() {
			defer close(checked)
			if want == healthyOrNot {
				return
			}
			time.Sleep(healthAt - time.Since(f.start))
			if ok, err := f.Healthy(); ok != (want == healthy) {
				t.Errorf("during the fault healthy is %t, %v", ok, err)
			}
		}()
		f.play()
		<-checked
		wait := rest
		if slices.ContainsFunc(s.faults, func(f row) bool { return f.RPC == "GetContainerEvents" }) {
			wait = restAfterStream
		}
		time.Sleep(wait)
		f.waits.Wait()
		f.reinspectDenied()
		if ok, err := f.Healthy(); !ok {
			t.Errorf("unhealthy in the end: %v", err)
		}
		f.RequirePromises(promised(s))
		spoiled = f.spoiledCalls()
	})
	return spoiled
}

// reinspectDenied requests an inspection of each pod if a status call answered
// NotFound for something that is listed: the pipeline believes that answer.
func (f *fixture) reinspectDenied() {
	for _, fault := range f.scenario.faults {
		if fault.Code != codes.NotFound {
			continue
		}
		for _, p := range f.Node.Pods() {
			f.RequestReinspect(pleg.PodUID(p.UID))
		}
		time.Sleep(5 * time.Second)
	}
}
