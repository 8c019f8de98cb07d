package hinter_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
)

func TestRequestsOfOnePodShareOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{took: time.Second}
		f := run(t, pods, nil, nil)
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
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{took: time.Second}
		f := run(t, pods, nil, nil)
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
		f.lister.mu.Lock()
		f.lister.listed = time.Now().Add(time.Millisecond)
		f.lister.mu.Unlock()
		sleep(2 * time.Second)
		f.require("observations", f.observations(), []pleg.PodUID{"a"})
	})
}

func TestRequestWithoutAPodListerListsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := run(t, nil, nil, nil)
		f.hinter.RequestRelist("a")
		synctest.Wait()
		f.requireRelists(1)
	})
}

func TestFailedSinglePodRelistListsAll(t *testing.T) {
	for name, pods := range map[string]*fakePods{
		"error":         {err: errors.New("unavailable")},
		"panic":         {fail: func() { panic("embedder") }},
		"hang":          {took: time.Hour},
		"another pod":   {pod: &pleg.Pod{UID: "b"}},
		"nil container": {pod: &pleg.Pod{UID: "a", Containers: []*pleg.Container{nil}}},
		"nil sandbox":   {pod: &pleg.Pod{UID: "a", Sandboxes: []*pleg.Container{nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := run(t, pods, nil, nil)
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
	synctest.Test(t, func(t *testing.T) {
		f := run(t, &fakePods{took: time.Hour}, nil, nil)
		f.hinter.RequestRelist("hung-0")
		f.hinter.RequestRelist("hung-1")
		synctest.Wait()
		if f.lister.soon > 0 {
			t.Error("a list of all pods was requested although a place was free")
		}
		f.hinter.RequestRelist("a")
		synctest.Wait()
		if f.lister.soon == 0 {
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
		const want = `
# HELP pleg_overflowed_hints_total Observations replaced by a relist of the pod because too many waited.
# TYPE pleg_overflowed_hints_total counter
pleg_overflowed_hints_total 1
`
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "pleg_overflowed_hints_total"); err != nil {
			t.Error(err)
		}
		uids := f.observations()
		f.require("observations", len(uids), room+1)
		f.require("the last one", uids[room:], []pleg.PodUID{"b"})
		f.require("lists", pods.relisted(), []pleg.PodUID{"b"})
	})
}
