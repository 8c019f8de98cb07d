package pipeline_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
)

// The model test drives the pipeline and the serial reference of bench/serial
// with the same random sequences and wants the same events and statuses of
// each pod. A sequence is a function of its seed alone.
var (
	modelSeed  = flag.Uint64("model.seed", 0, "run the model test with this seed only (0: many)")
	modelSeeds = flag.Uint64("model.seeds", 100, "number of seeds of each variant of the model test")
)

// TestModelLockstep lets everything settle before the next list: the pipeline
// must equal the reference list by list, status by status.
func TestModelLockstep(t *testing.T) {
	eachSeed(t, lockstep)
}

// TestModelFreeRunning lets lists overtake inspections, and inspections hang:
// the pipeline must equal the reference that is shown the observations of each
// pod which the pipeline inspected, and must have left out no other one that
// it had the time for.
func TestModelFreeRunning(t *testing.T) {
	eachSeed(t, freeRunning)
}

// TestModelSinglePods is TestModelFreeRunning with lists of single pods beside
// those of all pods: whichever began last counts.
func TestModelSinglePods(t *testing.T) {
	eachSeed(t, singlePods)
}

// TestModelQuarantine is TestModelFreeRunning with inspections that are
// cancelled as too many hang, and pods that wait for the next one: what is
// inspected in the end must show all the same.
func TestModelQuarantine(t *testing.T) {
	eachSeed(t, quarantined)
}

// TestModelEvents is TestModelSinglePods with the runtime's container events
// beside all lists: whole, incomplete, late, twice, out of order, or lost, on a
// stream that breaks. In the end the cache must equal that of a reference which
// was shown the last list alone, and the events of each pod must lead there in a
// legal order, none twice.
func TestModelEvents(t *testing.T) {
	eachSeed(t, withEvents)
}

// eachSeed runs the sequences of every seed with few and with many inspectors,
// until one fails.
func eachSeed(t *testing.T, run func(t *testing.T, seed uint64, inspectors int)) {
	for _, inspectors := range []int{1, 2, 16} {
		t.Run(fmt.Sprintf("inspectors=%d", inspectors), func(t *testing.T) {
			t.Parallel()
			first, last := uint64(1), *modelSeeds
			if *modelSeed != 0 {
				first, last = *modelSeed, *modelSeed
			}
			for seed := first; seed <= last && !t.Failed(); seed++ {
				if testing.Verbose() {
					t.Logf("seed %d", seed) // also known if the pipeline crashes
				}
				synctest.Test(t, func(t *testing.T) {
					defer func() {
						if t.Failed() {
							t.Logf("replay: go test -run '^%s$' . -model.seed=%d", t.Name(), seed)
						}
					}()
					run(t, seed, inspectors)
				})
			}
		})
	}
}
