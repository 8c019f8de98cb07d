package inspector

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// While the process is stopped, time passes and no ticks come: events that the runtime sent
// meanwhile are still read. All containers of a pod share the ticks.
func TestEndWaitsForTicks(t *testing.T) {
	for name, tc := range map[string]struct {
		ended []pleg.ContainerID
		ticks int
		given bool // up
	}{
		"stopped":        {[]pleg.ContainerID{"c"}, 1, false},
		"almost":         {[]pleg.ContainerID{"c"}, sayTicks - 1, false},
		"no event came":  {[]pleg.ContainerID{"c"}, sayTicks, true},
		"none of two":    {[]pleg.ContainerID{"c", "d"}, sayTicks, true},
		"almost, of two": {[]pleg.ContainerID{"c", "d"}, sayTicks - 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := podcache.New()
				cache.AnnounceRemoved(true)
				i, tick, done := &Inspector{opts: Options{Cache: cache}}, make(chan time.Time), make(chan struct{})
				go func() {
					defer close(done)
					i.awaitEnds(t.Context(), tc.ended, tick)
				}()
				for range tc.ticks {
					tick <- time.Now()
				}
				time.Sleep(10 * sayWait)
				synctest.Wait()
				select {
				case <-done:
					if !tc.given {
						t.Error("the wait is over")
					}
				default:
					if tc.given {
						t.Error("the wait is not over")
					}
				}
				for _, id := range tc.ended {
					cache.KeepRemoved(&pleg.ContainerStatus{ID: id})
				}
				<-done
			})
		})
	}
}

// No state of a pod that is gone is kept.
func TestNothingIsKeptOfAGonePod(t *testing.T) {
	i := &Inspector{
		opts: Options{Cache: podcache.New()}, good: map[pleg.PodUID]*pleg.PodStatus{"p": {}},
		failing: map[pleg.PodUID]bool{"p": true}, contradicted: map[pleg.PodUID]contradicted{"p": {}},
	}
	i.remove(t.Context(), stage.Change{UID: "p"}, make(chan stage.Outcome, 1), make(chan stage.Settled, 1))
	if len(i.good)+len(i.failing)+len(i.contradicted) > 0 {
		t.Errorf("kept: %v, %v, %v", i.good, i.failing, i.contradicted)
	}
}

// The context of an inspection that has ended is released: a program runs for months.
func TestContextIsReleased(t *testing.T) {
	for _, err := range []error{nil, errors.New("inspection failed")} {
		i, newErr := New(Options{Cache: podcache.New(), Inspectors: 1, HungAfter: time.Minute, Ended: func(pleg.PodUID, time.Duration, time.Time) {}, Logger: slog.New(slog.DiscardHandler)})
		if newErr != nil {
			t.Fatal(newErr)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		f := &flight{change: stage.Change{UID: "p", Pod: &pleg.Pod{UID: "p"}}, cancel: cancel}
		i.flights.add(f)
		i.finishInspection(t.Context(), result{flight: f, status: &pleg.PodStatus{}, err: err}, make(chan stage.Outcome, 2), make(chan stage.Settled, 2))
		if ctx.Err() == nil || len(i.flights.all) > 0 {
			t.Errorf("after %v the context is %v, and %d inspections are in flight", err, ctx.Err(), len(i.flights.all))
		}
	}
}
