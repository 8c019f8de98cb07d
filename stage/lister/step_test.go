package lister_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// step is what happens to the lister, or a check of what it does. Times are since the start.
type step func(t *testing.T, f *fixture)

// testLister takes the steps in a bubble.
func testLister(t *testing.T, steps ...step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, plegtest.New(), period)
		for _, step := range steps {
			step(t, f)
		}
	})
}

func next(at time.Duration, up bool) step {
	return func(t *testing.T, f *fixture) { t.Helper(); f.requireNext(t, at, up) }
}

func until(at time.Duration) step { return func(_ *testing.T, f *fixture) { f.sleepUntil(at) } }

var (
	up   step = func(_ *testing.T, f *fixture) { f.lister.StreamUp(true) }
	down step = func(_ *testing.T, f *fixture) { f.lister.StreamUp(false) }
	soon step = func(_ *testing.T, f *fixture) { f.lister.RelistSoon() }
	now  step = func(_ *testing.T, f *fixture) { f.lister.RelistNow() }
)

// failAfter makes the next list take this time and fail, slow only take it.
func failAfter(took time.Duration) step { return nextList(took, errList) }
func slow(took time.Duration) step      { return nextList(took, nil) }

func nextList(took time.Duration, err error) step {
	return func(_ *testing.T, f *fixture) {
		f.runtime.SetListFault(func(context.Context) error {
			f.runtime.SetListFault(nil)
			time.Sleep(took)
			return err
		})
	}
}

// requireNext requires a listing at the given time after the start.
func (f *fixture) requireNext(t *testing.T, want time.Duration, up bool) {
	t.Helper()
	l, sent := f.next(t)
	synctest.Wait() // until the lister has set its timer
	if sent != want || l.StreamUp != up {
		t.Errorf("listing at %v, stream up %v, want %v, %v", sent, l.StreamUp, want, up)
	}
}

// sleepUntil waits until the given time after the start.
func (f *fixture) sleepUntil(after time.Duration) {
	time.Sleep(time.Until(f.start.Add(after)))
	synctest.Wait()
}
