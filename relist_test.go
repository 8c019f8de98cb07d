package pipeline_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

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
		first, same := r.Relist(), r.Relist()
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
		requireRelisted(t, r.Relist(), nil)
		kit.RequireEvents(t, events, "b", "Started(c)")
		errList := errors.New("list failed")
		r.Runtime.SetListFault(plegtest.Fail(errList))
		requireRelisted(t, r.Relist(), errList)
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
		older := r.Relist()
		r.Start(t)
		time.Sleep(100 * time.Millisecond)
		r.Runtime.Set("a", "c=exited")
		newer := r.Relist()
		time.Sleep(500 * time.Millisecond)
		requireRelisted(t, older, nil)
		requireRelisting(t, newer)
		kit.RequireEvents(t, events, "a", "Started(c)")
		time.Sleep(500 * time.Millisecond)
		requireRelisted(t, newer, nil)
		kit.RequireEvents(t, events, "a", "Died(c)")
	})
}

// Of pods that an earlier pipeline has reported, only changes are reported.
func TestKnownPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := []*pipeline.Pod{
			plegtest.Pod("same", "c=running"), plegtest.Pod("ended", "c=running"), plegtest.Pod("gone", "c=exited"),
		}
		r := kit.New(t, pipeline.Options{Known: known})
		events := r.Events(t, 0)
		r.Runtime.Set("same", "c=running")
		r.Runtime.Set("ended", "c=exited")
		r.Runtime.Set("new", "c=running")
		r.StartBetweenLists(t)
		kit.RequireEvents(t, events, "ended", "Died(c)", "gone", "Removed(c)", "new", "Started(c)")
		if n := r.Runtime.Counts().Inspections["same"]; n != 0 {
			t.Errorf("%d inspections of the pod that has not changed", n)
		}
		r.RequestReinspect("same")
		kit.Relist(1)
		kit.RequireEvents(t, events, "same", "PodSync")
	})
}
