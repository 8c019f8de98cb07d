package lister_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// probe is a runtime's cheapest call.
type probe func(context.Context) error

func (p probe) Probe(ctx context.Context) error { return p(ctx) }

// TestProbesBetweenLists has a runtime that stops to answer between two lists that are far apart.
func TestProbesBetweenLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int64
		var silent atomic.Bool
		rt := plegtest.New()
		f := newFixtureWith(t, rt, probe(func(context.Context) error {
			if probes.Add(1); silent.Load() {
				time.Sleep(3 * time.Second)
				return errors.New("no answer")
			}
			return nil
		}), time.Minute, 100)
		f.sleepUntil(21 * time.Second)
		if probes, lists := probes.Load(), rt.Counts().Lists; probes != 10 || lists != 1 {
			t.Errorf("%d probes and %d lists in 21 s, want 10 and 1", probes, lists)
		}
		silent.Store(true)
		rt.SetListFault(func(context.Context) error { time.Sleep(20 * time.Second); return nil })
		f.sleepUntil(30 * time.Second)
		s := f.lister.Status()
		if got := s.Failing.Sub(f.start); got != 22*time.Second || s.Failures != 1 || s.FailedAfter != 3*time.Second {
			t.Errorf("failing since %v, %d times, after %v, want the probe of second 22", got, s.Failures, s.FailedAfter)
		}
		if got := s.Started.Sub(f.start); got != 25*time.Second {
			t.Errorf("the list began at %v, want 25 s", got)
		}
		silent.Store(false)
		rt.SetListFault(nil)
		f.sleepUntil(46 * time.Second)
		if s := f.lister.Status(); s.Failures != 0 || s.Took != 20*time.Second {
			t.Errorf("after the answer: %+v", s)
		}
	})
}
