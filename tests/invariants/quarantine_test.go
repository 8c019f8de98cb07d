package invariants_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

const (
	quarantineInspectors = 8
	hungPods             = 40
	goodPods             = 60
	quarantineSteps      = 240
	// quarantineWarmUp is longer than two inspections: before anything has answered, the
	// first wave of hung pods takes that long.
	quarantineWarmUp = 270
)

// quarantineTest is a pipeline on a runtime where hungPods pods hang until the runtime
// recovers.
type quarantineTest struct {
	*kit.Pipeline
	log       kit.Log
	events    <-chan pleg.Event
	seen      map[pleg.PodUID]int // events
	recovered chan struct{}
	// uncancellable: the hung calls ignore their context.
	uncancellable bool
}

func hungPod(n int) pleg.PodUID { return pleg.PodUID(fmt.Sprint("hung-", n)) }

func goodPod(n int) pleg.PodUID { return pleg.PodUID(fmt.Sprint("good-", n)) }

func newQuarantineTest(t *testing.T, uncancellable bool) *quarantineTest {
	q := &quarantineTest{seen: make(map[pleg.PodUID]int), recovered: make(chan struct{}), uncancellable: uncancellable}
	q.Pipeline = kit.New(t, pipeline.Options{Inspectors: quarantineInspectors, DeliverAfterFailures: 3, Logger: q.log.Logger()})
	q.events = q.Events(t, 10_000)
	for n := range hungPods {
		q.Runtime.SetPodFault(hungPod(n), q.hang)
		q.Runtime.Set(hungPod(n), "c=running")
	}
	q.Start(t)
	synctest.Wait()
	return q
}

// hang is the fault of the hung pods.
func (q *quarantineTest) hang(ctx context.Context) error {
	done := ctx.Done()
	if q.uncancellable {
		done = nil
	}
	select {
	case <-q.recovered:
		return nil
	case <-done:
		return ctx.Err()
	}
}

// step changes every good pod and requires its events at once.
func (q *quarantineTest) step(t *testing.T, n int) {
	t.Helper()
	for i := range goodPods {
		q.Runtime.Set(goodPod(i), fmt.Sprintf("c%d=running", n))
	}
	kit.Relist(1)
	for _, ev := range kit.Drain(q.events) {
		q.seen[ev.PodUID]++
		if !ev.Uninspected && time.Since(ev.ObservedAt) > 0 {
			t.Fatalf("step %d: late event %+v", n, ev)
		}
	}
	if got := q.Runtime.Counts().InFlight; !q.uncancellable && got > 2*quarantineInspectors {
		t.Fatalf("step %d: %d inspections in flight, want at most %d", n, got, 2*quarantineInspectors)
	}
}

func (q *quarantineTest) requireCounts(t *testing.T) {
	t.Helper()
	for n := range goodPods {
		if got, want := q.seen[goodPod(n)], 1+(quarantineSteps-1)*3; got != want {
			t.Errorf("pod %s has %d events, want %d", goodPod(n), got, want)
		}
	}
	for n := range hungPods {
		if got := q.seen[hungPod(n)]; got != 1 {
			t.Errorf("pod %s has %d events, want one, uninspected", hungPod(n), got)
		}
	}
	if got := q.Runtime.Counts().Lists; got != 1+quarantineWarmUp+quarantineSteps {
		t.Errorf("%d lists, want one each second", got)
	}
	if got := len(q.Quarantined()); got != hungPods {
		t.Errorf("%d pods in quarantine, want %d", got, hungPods)
	}
}

// requireRecovery ends the hangs and requires that every pod leaves the quarantine.
func (q *quarantineTest) requireRecovery(t *testing.T) {
	t.Helper()
	asked := time.Now()
	close(q.recovered)
	if q.uncancellable { // each pod is tried when its wait ends
		time.Sleep(pipeline.DefaultMaxQuarantine)
	}
	kit.Relist(10)
	if got := q.Quarantined(); len(got) > 0 {
		t.Errorf("%d pods in quarantine after the runtime recovered: %+v", len(got), got)
	}
	for n := range hungPods {
		uid := hungPod(n)
		if status, err := q.Cache().Get(uid); err != nil || status.Container("c") == nil || !promises.Fresh(q.Cache(), uid, asked) {
			t.Errorf("cache of pod %s: %+v, %v", uid, status, err)
		}
	}
}

// Forty of a hundred pods hang until the runtime recovers. The others change every
// second, and their events are never late.
func TestHungPodsAreQuarantined(t *testing.T) {
	for name, uncancellable := range map[string]bool{"cancelled": false, "uncancellable": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQuarantineTest(t, uncancellable)
				kit.Relist(quarantineWarmUp)
				if got := len(q.Quarantined()); got < hungPods-2*quarantineInspectors {
					t.Errorf("%d pods in quarantine, want %d, except those that hang for the first time", got, hungPods)
				}

				for n := range quarantineSteps {
					q.step(t, n)
				}
				q.requireCounts(t)
				q.requireRecovery(t)
				_ = q.Stop()
				q.log.RequireLines(t, hungPods, "pod quarantined")
				q.log.RequireLines(t, hungPods, "pod released")
				q.log.RequireLines(t, 0, "inspection failed")
			})
		})
	}
}
