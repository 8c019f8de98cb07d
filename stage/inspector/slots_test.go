package inspector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Retries take at most half of the slots. While none ends, they begin as far apart as the last
// inspection took, but at least HungAfter and at most twice that.
func TestRetriesLeaveSlots(t *testing.T) {
	for took, apart := range map[time.Duration]time.Duration{0: hungAfter, 3 * hungAfter / 2: 3 * hungAfter / 2, 5 * hungAfter: 2 * hungAfter} {
		kit.Bubble(t, took.String(), func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{Inspectors: 8, HungAfter: hungAfter})
			f.runtime.SetPodFault("slow", plegtest.Delay(took))
			f.do(one("slow"))
			f.runtime.SetInspectFault(plegtest.Hang)
			for n, uid := range uids("hung", 5) {
				if began := f.acceptsRetry(one(uid)); began != (n < 4) {
					t.Errorf("retry %d began: %v, want 4", n, began)
				}
				time.Sleep(apart - 1)
				if n < 3 && f.acceptsRetry(one("early")) {
					t.Errorf("after retry %d another began sooner than %v later", n, apart)
				}
				time.Sleep(1)
			}
			f.runtime.SetInspectFault(nil)
			if s, _, ok := f.do(one("healthy")); s.Err != nil || !ok {
				t.Errorf("a healthy pod settled with %v", s.Err)
			}
		})
	}
}

// A retry begins as soon as any slot is free, on a busy node too.
func TestRetryNeedsOneFreeSlot(t *testing.T) {
	for busy, want := range map[int]bool{3: true, 4: false} {
		testHanging(t, 4, func(t *testing.T, f *fixture) {
			for _, uid := range uids("hung", busy) {
				f.inspect <- one(uid)
			}
			if began := f.acceptsRetry(one("hung-again")); began != want {
				t.Errorf("with %d of 4 slots taken a retry began: %v", busy, began)
			}
		})
	}
}

// An error of the runtime's own is no hang, however late it comes.
func TestLateError(t *testing.T) {
	for name, tc := range map[string]struct {
		after time.Duration
		late  bool
	}{"promptly": {hungAfter - 1, false}, "late": {hungAfter, true}} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{HungAfter: hungAfter})
			f.runtime.SetInspectFault(func(context.Context) error { time.Sleep(tc.after); return errInspect })
			if s, _, _ := f.do(one("a")); s.Hung || s.Late != tc.late || !errors.Is(s.Err, errInspect) {
				t.Errorf("settled %+v, want it to count as late: %v", s, tc.late)
			}
		})
	}
}

// On a slow runtime more than Inspectors are in flight only as long as none ends.
func TestExtraInspectionsOnlyWhileNoneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const inspectors = 4
		begun, ended := 0, make(chan struct{})
		f := newFixture(t, nil, inspector.Options{Inspectors: inspectors, HungAfter: hungAfter})
		f.runtime.SetInspectFault(func(ctx context.Context) error {
			select {
			case <-ended:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		for f.accepts(one(pleg.PodUID(fmt.Sprint("pod-", begun)))) {
			begun++
		}
		for range 2 {
			time.Sleep(hungAfter)
			for f.accepts(one(pleg.PodUID(fmt.Sprint("pod-", begun)))) {
				begun++
			}
		}
		if want := inspectors + 2; begun != want {
			t.Fatalf("%d inspections began, want %d", begun, want)
		}
		for n := range 10 {
			time.Sleep(hungAfter / 2)
			ended <- struct{}{}
			for f.accepts(one(pleg.PodUID(fmt.Sprint("pod-", begun)))) {
				begun++
			}
			if got := f.inspector.State().InFlight; n > 0 && got != inspectors {
				t.Errorf("%d inspections in flight after %d ended, want %d", got, n+1, inspectors)
			}
		}
	})
}
