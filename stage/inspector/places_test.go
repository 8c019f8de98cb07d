package inspector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Retries take at most half of the places.
func TestRetriesLeavePlaces(t *testing.T) {
	testHanging(t, 8, func(t *testing.T, f *fixture) {
		retries := 0
		for n := range 8 {
			if f.acceptsRetry(one(pleg.PodUID(fmt.Sprint("hung-again-", n)))) {
				retries++
			}
		}
		if retries != 4 {
			t.Errorf("%d retries at once, want 4", retries)
		}
		if s, _, ok := f.do(one("healthy")); s.Err != nil || !ok {
			t.Errorf("a healthy pod settled with %v", s.Err)
		}
	})
}

// A retry begins as soon as any place is free, on a busy node too.
func TestRetryNeedsOneFreePlace(t *testing.T) {
	testHanging(t, 4, func(t *testing.T, f *fixture) {
		for _, uid := range uids("hung", 3) {
			f.inspect <- one(uid)
		}
		if !f.acceptsRetry(one("hung-again-0")) {
			t.Error("no retry began, although a place is free")
		}
		if f.acceptsRetry(one("hung-again-1")) {
			t.Error("a retry began, although all places are taken")
		}
	})
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
