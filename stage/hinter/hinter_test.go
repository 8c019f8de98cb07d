package hinter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestRequestsOfOnePodShareOneList(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.slow()
		f.request("w x y z a a a b c d e") // four lists run at a time
		time.Sleep(time.Minute)
		f.requireCalls(4, 0) // until the differ has their answers
		f.requireObserved(0, "w x y z")
		f.requireObserved(time.Second, "a b c d")
		f.requireObserved(time.Second, "e")
		f.requireCalls(9, 0)
	})
}

func TestRequestDuringAListStartsAnother(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.slow()
		f.request("a a a")
		f.requireObserved(time.Second, "a")
		f.requireObserved(time.Second, "a")
		f.requireObserved(time.Minute, "")
	})
}

func TestRequestCoveredByANewerListingIsSkipped(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.slow()
		f.request("w x y z a b")
		f.lister.began.Store(f.ticks.Next())
		f.request("b c")
		f.requireObserved(time.Second, "w x y z")
		f.requireObserved(time.Minute, "b c")
	})
}

func TestRequestThatNoSinglePodListServesListsAll(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.runtime.SetListFault(plegtest.Fail(errUnavailable))
		f.request("a")
		f.requireObserved(time.Minute, "")
		f.requireCalls(1, 1)
	})
	testHinter(t, func(o *hinter.Options) { o.Pods = nil }, func(f *fixture) {
		f.request("a")
		f.requireObserved(time.Minute, "")
		f.requireCalls(0, 1)
	})
}

// While all slots are taken, a list of all pods serves the requests that wait.
func TestRequestWhileAllSlotsAreTakenListsAll(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.runtime.SetListFault(plegtest.Hang)
		f.request("w x y z")
		if f.lister.soon.Load() > 0 {
			f.t.Error("a list of all pods was requested although a slot was free")
		}
		f.request("a")
		if f.lister.soon.Load() == 0 {
			f.t.Error("no list of all pods was requested")
		}
	})
}

// A list of all pods is cheaper than many lists of one pod.
func TestManyRequestsListAll(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.slow()
		f.request("w x y z")
		var many []string
		for _, uid := range kit.UIDs(33) {
			many = append(many, string(uid))
		}
		f.request(strings.Join(many[:32], " "))
		f.requireCalls(4, 0)
		f.request(many[32])
		f.requireCalls(4, 1)
		kit.RequireMetric(f.t, f.metrics, 33, "pleg_overflowed_hints_total")
		f.requireObserved(time.Second, "w x y z")
		f.request(many[0])
		f.requireObserved(time.Minute, many[0]) // the others are not listed singly
	})
}
