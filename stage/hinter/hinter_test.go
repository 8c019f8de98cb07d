package hinter_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestRequestsOfOnePodShareOneList(t *testing.T) {
	pods := &fakePods{took: time.Second}
	testHinter(t, pods, nil, func(f *fixture) {
		f.hinter.RequestRelist("x")
		f.hinter.RequestRelist("y")
		synctest.Wait() // further requests wait: two lists run at a time
		for range 3 {
			f.hinter.RequestRelist("a")
		}
		f.hinter.RequestRelist("b")
		f.hinter.RequestRelist("c")
		sleep(time.Second)
		f.require("observations", len(f.observations()), 2)
		f.require("lists at once", pods.relisted(), []pleg.PodUID{"a", "b", "x", "y"})
		sleep(time.Second)
		f.require("observations", len(f.observations()), 2)
		sleep(time.Second)
		f.require("then", f.observations(), []pleg.PodUID{"c"})
		f.require("lists", pods.relisted(), []pleg.PodUID{"a", "b", "c", "x", "y"})
	})
}

func TestRequestDuringAListStartsAnother(t *testing.T) {
	pods := &fakePods{took: time.Second}
	testHinter(t, pods, nil, func(f *fixture) {
		f.hinter.RequestRelist("a")
		synctest.Wait()
		f.hinter.RequestRelist("a")
		f.hinter.RequestRelist("a")
		sleep(3 * time.Second)
		f.require("observations", f.observations(), []pleg.PodUID{"a", "a"})
	})
}

func TestRequestCoveredByANewerListingIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{took: time.Second}
		f := run(t, pods, nil, func(o *hinter.Options) { o.Relists = 1 })
		f.hinter.RequestRelist("a")
		f.hinter.RequestRelist("b")
		synctest.Wait()
		listed := time.Now().Add(time.Millisecond)
		f.lister.listed.Store(&listed)
		sleep(2 * time.Second)
		f.require("observations", f.observations(), []pleg.PodUID{"a"})
	})
}

func TestRequestThatNoSinglePodListServesListsAll(t *testing.T) {
	for name, pods := range map[string]pleg.PodLister{
		"no PodLister":  nil,
		"error":         &fakePods{err: errors.New("unavailable")},
		"panic":         &fakePods{fail: func() { panic("embedder") }},
		"hang":          &fakePods{took: time.Hour},
		"another pod":   &fakePods{pod: &pleg.Pod{UID: "b"}},
		"nil container": &fakePods{pod: &pleg.Pod{UID: "a", Containers: []*pleg.Container{nil}}},
		"nil sandbox":   &fakePods{pod: &pleg.Pod{UID: "a", Sandboxes: []*pleg.Container{nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			testHinter(t, pods, nil, func(f *fixture) {
				f.hinter.RequestRelist("a")
				sleep(2 * time.Minute)
				f.require("observations", len(f.observations()), 0)
				f.requireRelists(1)
			})
		})
	}
}

// While all places are taken, a list of all pods serves the requests that wait.
func TestRequestWhileAllPlacesAreTakenListsAll(t *testing.T) {
	testHinter(t, &fakePods{took: time.Hour}, nil, func(f *fixture) {
		f.hinter.RequestRelist("hung-0")
		f.hinter.RequestRelist("hung-1")
		synctest.Wait()
		if f.lister.soon.Load() > 0 {
			t.Error("a list of all pods was requested although a place was free")
		}
		f.hinter.RequestRelist("a")
		synctest.Wait()
		if f.lister.soon.Load() == 0 {
			t.Error("no list of all pods was requested")
		}
	})
}

// An event for which there is no room is counted, and its pod is listed once there is.
func TestOverflowingEventRelistsThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 4096
		pods, metrics := &fakePods{}, prometheus.NewPedanticRegistry()
		f := run(t, pods, streamOf(func(hint func(pleg.Hint)) {
			for range room {
				hint(newHint("a"))
			}
			hint(newHint("b"))
		}), func(o *hinter.Options) { o.Metrics = instrument.Registry{Registerer: metrics} })
		synctest.Wait()
		f.require("lists while there is no room", len(pods.relisted()), 0)
		f.require("events for which there was no room", kit.Metric(t, metrics, "pleg_overflowed_hints_total"), 1)
		uids := f.observations()
		f.require("observations", len(uids), room+1)
		f.require("the last one", uids[room:], []pleg.PodUID{"b"})
		f.require("lists", pods.relisted(), []pleg.PodUID{"b"})
	})
}
