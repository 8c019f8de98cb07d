package hinter_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestRequestsOfOnePodShareOneList(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.slow()
		f.RequestRelist("x")
		f.RequestRelist("y")
		synctest.Wait() // further requests wait: two lists run at a time
		for range 3 {
			f.RequestRelist("a")
		}
		f.RequestRelist("b")
		f.RequestRelist("c")
		f.requireObserved(time.Second, "x y")
		f.requireObserved(time.Second, "a b")
		f.requireObserved(time.Second, "c")
		f.requireCalls(5, 0)
	})
}

func TestRequestDuringAListStartsAnother(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.slow()
		f.RequestRelist("a")
		synctest.Wait()
		f.RequestRelist("a")
		f.RequestRelist("a")
		f.requireObserved(3*time.Second, "a a")
	})
}

func TestRequestCoveredByANewerListingIsSkipped(t *testing.T) {
	testHinter(t, func(o *hinter.Options) { o.Relists = 1 }, func(f *fixture) {
		f.slow()
		f.RequestRelist("a")
		f.RequestRelist("b")
		synctest.Wait()
		listed := time.Now().Add(time.Millisecond)
		f.lister.listed.Store(&listed)
		f.requireObserved(2*time.Second, "a")
	})
}

func TestRequestThatNoSinglePodListServesListsAll(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.runtime.SetListFault(plegtest.Fail(errUnavailable))
		f.RequestRelist("a")
		f.requireObserved(time.Minute, "")
		f.requireCalls(1, 1)
	})
	testHinter(t, func(o *hinter.Options) { o.Pods = nil }, func(f *fixture) {
		f.RequestRelist("a")
		f.requireObserved(time.Minute, "")
		f.requireCalls(0, 1)
	})
}

// While all places are taken, a list of all pods serves the requests that wait.
func TestRequestWhileAllPlacesAreTakenListsAll(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.runtime.SetListFault(plegtest.Hang)
		f.RequestRelist("hung-0")
		f.RequestRelist("hung-1")
		synctest.Wait()
		if f.lister.soon.Load() > 0 {
			t.Error("a list of all pods was requested although a place was free")
		}
		f.RequestRelist("a")
		synctest.Wait()
		if f.lister.soon.Load() == 0 {
			t.Error("no list of all pods was requested")
		}
	})
}

// An event for which there is no room is counted, and its pod is listed once there is.
func TestOverflowingEventRelistsThePod(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		const room = 4096
		for range room {
			f.announce("a", nil)
		}
		f.announce("b", nil)
		synctest.Wait()
		f.requireCalls(0, 0)
		kit.RequireMetric(t, f.metrics, 1, "pleg_overflowed_hints_total")
		if got := f.observations(); !slices.Equal(got, append(slices.Repeat([]string{"a"}, room), "b")) {
			t.Errorf("%d observations, want %d of a and one of b", len(got), room)
		}
		f.requireCalls(1, 0)
	})
}
