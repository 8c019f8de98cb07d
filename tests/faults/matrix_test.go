// Package faults_test runs the pipeline on a simulated runtime that fails in every way
// that package simruntime can simulate, and checks that a fault costs nothing but time.
//
// In each case:
//
//   - after the faults have ended and the pods rest, the cache equals the runtime;
//   - the events of each container are in order, none is repeated, and the last one
//     agrees with the container; none is missing if the pipeline follows CRI events
//     and the fault does not affect them;
//   - Healthy is false while no list can succeed, and true in the end;
//   - nothing panics and no goroutine leaks.
//
// The pipeline cannot tell two faults from the truth, so less is checked there. A
// list with a wrong id says that containers are gone. A container whose state the
// list does not know may be reported as started once more, as the kubelet does.
package faults_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

var (
	wholeMatrix = flag.Bool("faults.matrix", false, "run each random fault of TestFaultMatrix with and without events")
	randomSeed  = flag.Uint64("faults.seed", 0, "run TestRandomFaults with this seed only (0: many)")
	randomSeeds = flag.Uint64("faults.seeds", 10, "number of seeds of TestRandomFaults")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// More times in units. A fault that is always or random holds from faultsFrom to
// faultsUntil, never at the moment of a change; one that hits once may do so until
// the end of the churn.
const (
	faultsFrom  = 2.9
	faultsUntil = 8.9
	// healthAt is when Healthy is called, shortly before the fault ends.
	healthAt = 8.8
	// rest is long enough for a list, and for what waits for one.
	rest = 6
	// restWithEvents is the longest backoff of a stream, and the list after it.
	restWithEvents = 25
)

// TestFaultMatrix runs every call of the pipeline with every fault: once and
// always, with and without events, and at random. With -faults.matrix, random
// faults run with and without events too.
func TestFaultMatrix(t *testing.T) {
	for n, r := range rows() {
		for _, when := range []string{once, always, random} {
			fit := r.modes()
			if when == random && !*wholeMatrix {
				fit = fit[n%len(fit):][:1]
			}
			for _, m := range fit {
				t.Run(fmt.Sprintf("%s/%s/%s/%v", r.RPC, r.name(), when, m), func(t *testing.T) {
					t.Parallel()
					s := scenario{seed: uint64(n), pods: 3, containers: 2, rate: 2, mode: m, faults: []simruntime.Fault{r.at(when, time.Second)}}
					synctest.Test(t, func(t *testing.T) {
						if runInBubble(t, s, r.healthy(when)) == 0 {
							t.Error("no call was spoiled: this tests nothing")
						}
					})
				})
			}
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

// runInBubble runs a scenario over an in-memory connection on the fake clock, and
// returns the number of spoiled calls.
func runInBubble(t *testing.T, s scenario, want health) int {
	t.Helper()
	f := newFixture(t, s, time.Second, nil)
	checked := make(chan struct{})
	go func() {
		defer close(checked)
		time.Sleep(units(faultsFrom+1, time.Second))
		f.checkVersion()
		time.Sleep(units(healthAt, time.Second) - time.Since(f.client.start))
		if ok, err := f.Healthy(); want != healthyOrNot && ok != (want == healthy) {
			t.Errorf("during the fault healthy is %t, %v", ok, err)
		}
	}()
	f.play()
	<-checked
	wait := rest * time.Second
	if s.mode.events != pipeline.EventsOff {
		wait = restWithEvents * time.Second
	}
	time.Sleep(wait)
	f.reinspectDenied()
	if diff := f.cacheDiff(); diff != "" {
		t.Errorf("the cache is wrong %v after the end:\n%s", wait, diff)
	}
	if ok, err := f.Healthy(); !ok {
		t.Errorf("unhealthy in the end: %v", err)
	}
	f.RequirePromises(promised(s))
	return f.spoiledCalls()
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

// checkVersion calls Version if a fault is about it, as the pipeline rarely does.
// Each call must end in time, and fail if the fault holds then.
func (f *fixture) checkVersion() {
	for _, fault := range f.scenario.faults {
		if fault.RPC != "Version" {
			continue
		}
		always := fault.Times == 0 && fault.Probability == 0 && kind(fault) != slow
		for range 5 {
			began := time.Now()
			since := began.Sub(f.client.start)
			fails := always && since > fault.From && (fault.Until == 0 || since+2*f.unit < fault.Until)
			_, err := f.client.Check(context.Background())
			if took := time.Since(began); took > 2*f.unit || fails && err == nil {
				f.t.Errorf("Check took %v and returned %v", took, err)
			}
		}
	}
}
