package pipeline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// relisting starts a list of all pods and does not wait for its end.
func relisting(t *testing.T, r *kit.Pipeline) <-chan error {
	t.Helper()
	relisted := make(chan error, 1)
	go func() { relisted <- r.Relist(t.Context()) }()
	synctest.Wait()
	return relisted
}

// requireRelisted fails unless a relist has ended with an error that is want.
func requireRelisted(t *testing.T, relisted <-chan error, want error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-relisted:
		if !errors.Is(err, want) {
			t.Errorf("the relist ended with %v, want %v", err, want)
		}
	default:
		t.Error("the relist has not ended")
	}
}

func requireRelisting(t *testing.T, relisted <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-relisted:
		t.Errorf("the relist has ended with %v", err)
	default:
	}
}

// A relist ends once every changed pod has been inspected, also those that fail, and
// the events have been published. Before Run it is the first list.
func TestRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{RelistPeriod: time.Hour})
		events := r.Events(t, 0)
		r.Runtime.Set("a", "c=running")
		r.Runtime.Set("b", "c=running")
		r.Runtime.Set("slow", "c=running")
		errInspect := errors.New("inspection failed")
		r.Runtime.SetPodFault("b", plegtest.Fail(errInspect))
		r.Runtime.SetPodFault("slow", plegtest.Delay(time.Second/2))
		first, same := relisting(t, r), relisting(t, r)
		r.Start(t)
		requireRelisting(t, first)
		time.Sleep(time.Second)
		requireRelisted(t, first, nil)
		requireRelisted(t, same, nil)
		if n := r.Runtime.Counts().Lists; n != 1 {
			t.Errorf("%d lists, want 1", n)
		}
		kit.RequireEvents(t, events, "a", "Started(c)", "slow", "Started(c)")
		if _, err := r.Cache().Get("b"); !errors.Is(err, errInspect) {
			t.Errorf("cache has %v of the pod that fails", err)
		}
		r.Runtime.SetPodFault("b", nil)
		time.Sleep(time.Second)
		requireRelisted(t, relisting(t, r), nil)
		kit.RequireEvents(t, events, "b", "Started(c)")
		errList := errors.New("list failed")
		r.Runtime.SetListFault(plegtest.Fail(errList))
		time.Sleep(time.Second)
		requireRelisted(t, relisting(t, r), errList)
	})
}

// A relist waits for a change that it found while an older change of the same pod was
// in flight.
func TestRelistDuringInspection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{RelistPeriod: time.Hour})
		events := r.Events(t, 0)
		r.Runtime.Set("a", "c=running")
		r.Runtime.SetPodFault("a", plegtest.Delay(500*time.Millisecond))
		older := relisting(t, r)
		r.Start(t)
		time.Sleep(100 * time.Millisecond)
		r.Runtime.Set("a", "c=exited")
		newer := relisting(t, r)
		time.Sleep(500 * time.Millisecond)
		requireRelisted(t, older, nil)
		requireRelisting(t, newer)
		kit.RequireEvents(t, events, "a", "Started(c)")
		time.Sleep(500 * time.Millisecond)
		requireRelisted(t, newer, nil)
		kit.RequireEvents(t, events, "a", "Died(c)")
	})
}

// However many wait for a relist, and however often they ask, lists do not follow each
// other without a pause.
func TestRelistsAreNotMadeInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{RelistPeriod: time.Hour})
		r.Start(t)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for range 100 {
			go func() {
				for ctx.Err() == nil {
					_ = r.Relist(ctx)
				}
			}()
		}
		time.Sleep(11 * time.Second)
		if n := r.Runtime.Counts().Lists; n < 10 || n > 14 {
			t.Errorf("%d lists within 11 s, want one a second", n)
		}
	})
}

// A relist ends with its context, and with the pipeline.
func TestRelistEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		errCaller := errors.New("the caller has no more time")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Relist(ctx) }()
		synctest.Wait()
		cancel(errCaller)
		requireRelisted(t, ended, errCaller)
		if err := r.Relist(ctx); !errors.Is(err, errCaller) {
			t.Errorf("Relist with a context that has ended = %v, want its cause", err)
		}
		r.Runtime.SetListFault(plegtest.Hang)
		waiting := relisting(t, r)
		r.Start(t)
		_ = r.Stop()
		requireRelisted(t, waiting, pleg.ErrStopped)
		requireRelisted(t, relisting(t, r), pleg.ErrStopped)
	})
}
