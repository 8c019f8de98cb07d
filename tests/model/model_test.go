// Package model_test compares the pipeline with the serial reference of bench/serial:
// for the same random sequences both must have the same events and statuses of each
// pod. A sequence depends only on its seed.
package model_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// The number of seeds is small here; "make faults" runs many.
var (
	modelSeed  = flag.Uint64("model.seed", 0, "run the model test with this seed only (0: many)")
	modelSeeds = flag.Uint64("model.seeds", 25, "number of seeds of each variant of the model test")
)

// TestModelLockstep lets everything settle before the next list: the pipeline must equal
// the reference after every list.
func TestModelLockstep(t *testing.T) {
	eachSeed(t, 1, lockstep)
}

// TestModelFreeRunning lets lists overtake inspections, and inspections hang. The pipeline
// must equal a reference that gets the observations for which the pipeline inspected,
// and it must not skip an observation that it had time for.
func TestModelFreeRunning(t *testing.T) {
	eachSeed(t, 1, func(t *testing.T, seed uint64, inspectors int) {
		b := newFreeRun(newHistory(seed), inspectors)
		b.run(t, b.runtime)
	})
}

// TestModelSinglePods is TestModelFreeRunning with lists of single pods beside lists of
// all pods: the list that began last counts.
func TestModelSinglePods(t *testing.T) {
	eachSeed(t, 1, func(t *testing.T, seed uint64, inspectors int) {
		b := newFreeRun(newHistory(seed), inspectors)
		b.listsPods = true
		b.run(t, podRuntime{b.runtime})
	})
}

// TestModelQuarantine is TestModelFreeRunning with quarantine: the pipeline cancels
// inspections because too many hang, and their pods wait. In the end it must equal the
// reference all the same.
func TestModelQuarantine(t *testing.T) {
	eachSeed(t, 1, func(t *testing.T, seed uint64, inspectors int) {
		b := newFreeRun(newHistory(seed), inspectors)
		b.quarantine, b.runtime.hungAfter = 5*time.Second, freeHungAfter
		b.run(t, b.runtime)
	})
}

// TestModelEvents is TestModelSinglePods with CRI events: complete, incomplete, late,
// twice, out of order, or lost, on a stream that breaks. In the end the cache must equal
// a reference that got only the last list, and the events of each pod must lead there in
// a legal order, none twice.
func TestModelEvents(t *testing.T) {
	eachSeed(t, 3, withEvents)
}

// eachSeed runs the sequence of every seed with few and with many inspectors, until one
// fails. factor multiplies the number of seeds, for tests with more to vary.
func eachSeed(t *testing.T, factor uint64, run func(t *testing.T, seed uint64, inspectors int)) {
	for _, inspectors := range []int{1, 2, 16} {
		t.Run(fmt.Sprintf("inspectors=%d", inspectors), func(t *testing.T) {
			t.Parallel()
			first, last := uint64(1), factor*(*modelSeeds)
			if *modelSeed != 0 {
				first, last = *modelSeed, *modelSeed
			}
			for seed := first; seed <= last && !t.Failed(); seed++ {
				if testing.Verbose() {
					t.Logf("seed %d", seed) // known even if the pipeline crashes
				}
				synctest.Test(t, func(t *testing.T) {
					defer func() {
						if t.Failed() {
							t.Logf("replay: go test -run '^%s$' ./tests/model -model.seed=%d", t.Name(), seed)
						}
					}()
					run(t, seed, inspectors)
				})
			}
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
