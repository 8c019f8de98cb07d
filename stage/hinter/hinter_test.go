package hinter_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestRequestsOfOnePodShareOneList(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.slow()
		f.request("w x y z a a a b c d e") // four lists run at a time
		time.Sleep(time.Minute)
		f.requireCalls(4, 0) // until the differ has received their answers
		f.requireObserved(0, "w x y z")
		f.requireObserved(time.Second, "a b c d")
		f.requireObserved(time.Second, "e")
		f.requireCalls(9, 0)
		f.RequestRelist("f")
		f.RequestRelist("g") // at once
		f.requireObserved(time.Second, "f g")
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
		f.runtime.SetListFault(func(context.Context) error { time.Sleep(time.Second); return errUnavailable })
		f.request("a a") // again, while it is listed
		f.requireObserved(time.Minute, "")
		f.requireCalls(3, 3)
		kit.RequireMetric(f.t, f.metrics, 3, "pleg_pod_relist_duration_seconds") // the failed ones too
		kit.RequireSum(f.t, f.metrics, 2, "pleg_pod_relist_duration_seconds")
		kit.RequireMetric(f.t, f.metrics, 3, "pleg_pod_relist_errors_total")
		f.logged.RequireLines(f.t, 3, `level=WARN msg="single-pod relist failed, relisting all pods" stage=hinter podUID=a err=unavailable`)
	})
	testHinter(t, func(o *hinter.Options) { o.Pods = nil }, func(f *fixture) {
		f.request("a")
		f.requireObserved(time.Minute, "")
		f.requireCalls(0, 1)
	})
}

// An answer is as old as the beginning of its list, and known from its end on.
func TestObservationHasTheTimesOfItsList(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.slow()
		before, began := f.ticks.Next(), time.Now()
		f.request("a")
		during := f.ticks.Next()
		o := <-f.out
		if !o.At.Equal(began) || o.Began <= before || o.Began >= during || o.Answered <= during {
			f.t.Errorf("%+v of a list that began at %v, between the ticks %d and %d", o.Asked, began, before, during)
		}
	})
}

// A list that the end of the hinter cuts has not failed.
func TestListAtTheEnd(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.runtime.SetListFault(plegtest.Hang)
		f.request("a")
		_ = f.stop()
		f.requireCalls(1, 0)
		kit.RequireMetric(f.t, f.metrics, 0, "pleg_pod_relist_errors_total")
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
		for n := range int64(2) { // also if the first has been served meanwhile
			f.request("a")
			if got := f.lister.soon.Load(); got != n+1 {
				f.t.Errorf("%d lists of all pods were requested, want %d", got, n+1)
			}
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
		f.requireObserved(time.Second, "w x y z")
		f.request(many[0] + " " + many[31])
		f.requireObserved(time.Minute, many[0]+" "+many[31]) // the others are not listed singly
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errUnavailable = errors.New("unavailable")

// fakeLister records the requests of the hinter. began is the tick of the newest list of all pods.
type fakeLister struct {
	relists, soon atomic.Int64
	began         atomic.Uint64
}

func (l *fakeLister) RelistNow()        { l.relists.Add(1) }
func (l *fakeLister) RelistSoon()       { l.soon.Add(1) }
func (l *fakeLister) LastBegan() uint64 { return l.began.Load() }

// fixture is a hinter that runs, and its runtime. The test acts as differ.
type fixture struct {
	*hinter.Hinter
	t       *testing.T
	ticks   stage.Ticks
	runtime *plegtest.Runtime
	lister  fakeLister
	metrics *prometheus.Registry
	logged  kit.Log
	out     chan stage.Observation
	stop    func() error
}

// testHinter runs a test with a hinter in a bubble. change may be nil.
func testHinter(t *testing.T, change func(*hinter.Options), test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t, runtime: plegtest.New(), metrics: prometheus.NewPedanticRegistry(), out: make(chan stage.Observation)}
		o := hinter.Options{
			Pods: f.runtime, Ticks: &f.ticks, Lister: &f.lister,
			Logger: f.logged.Logger(), Metrics: instrument.Registry{Registerer: f.metrics},
		}
		if change != nil {
			change(&o)
		}
		var err error
		f.Hinter, err = hinter.New(o)
		kit.Must(t, err)
		f.stop = kit.Run(t, func(ctx context.Context) error { return f.Run(ctx, f.out) })
		test(f)
	})
}

// request requests lists of these pods, one after the other.
func (f *fixture) request(uids string) {
	for uid := range strings.FieldsSeq(uids) {
		f.RequestRelist(pleg.PodUID(uid))
		synctest.Wait()
	}
}

// slow makes each list of a pod take a second.
func (f *fixture) slow() { f.runtime.SetListFault(plegtest.Delay(time.Second)) }

// observations returns the pods of the observations that are ready now.
func (f *fixture) observations() []string {
	var uids []string
	for {
		synctest.Wait()
		select {
		case o := <-f.out:
			if uids = append(uids, string(o.UID)); o.Began == 0 || o.Began >= o.Answered || o.At.IsZero() {
				f.t.Errorf("%+v has no time", o)
			}
		default:
			return uids
		}
	}
}

// requireObserved waits d, and requires observations of these pods, in any order.
func (f *fixture) requireObserved(d time.Duration, want string) {
	f.t.Helper()
	time.Sleep(d)
	if got := slices.Sorted(slices.Values(f.observations())); strings.Join(got, " ") != want {
		f.t.Errorf("observed %q, want %q", got, want)
	}
}

// requireCalls requires that the hinter has made this number of lists of single pods, and requested
// this number of lists of all pods.
func (f *fixture) requireCalls(pods int, all int64) {
	f.t.Helper()
	if gotPods, gotAll := f.runtime.Counts().PodLists, f.lister.relists.Load(); gotPods != pods || gotAll != all {
		f.t.Errorf("%d lists of single pods and %d of all, want %d and %d", gotPods, gotAll, pods, all)
	}
}
