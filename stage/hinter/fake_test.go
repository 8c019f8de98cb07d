package hinter_test

import (
	"context"
	"errors"
	"log/slog"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errUnavailable = errors.New("unavailable")

// fakeLister records what the hinter reports to the lister.
type fakeLister struct {
	relists, soon atomic.Int64
	open          atomic.Bool // the stream
	listed        atomic.Pointer[time.Time]
}

func (l *fakeLister) RelistNow()    { l.relists.Add(1) }
func (l *fakeLister) RelistSoon()   { l.soon.Add(1) }
func (l *fakeLister) StreamOpened() { l.open.Store(true) }
func (l *fakeLister) StreamEnded()  { l.open.Store(false) }

func (l *fakeLister) LastSuccess() time.Time {
	if at := l.listed.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// fixture is a hinter that runs, and its runtime. The test acts as differ.
type fixture struct {
	*hinter.Hinter
	t       *testing.T
	runtime *plegtest.Runtime
	lister  fakeLister
	metrics *prometheus.Registry
	out     chan stage.Observation
}

// testHinter runs a test with a hinter in a bubble. change may be nil.
func testHinter(t *testing.T, change func(*hinter.Options), test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, change)
		f.run()
		synctest.Wait()
		test(f)
	})
}

func newFixture(t *testing.T, change func(*hinter.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, runtime: plegtest.New(), metrics: prometheus.NewPedanticRegistry(), out: make(chan stage.Observation)}
	o := hinter.Options{
		Pods: f.runtime, Events: f.runtime, Lister: &f.lister, Relists: 2,
		Logger: slog.New(slog.DiscardHandler), Metrics: instrument.Registry{Registerer: f.metrics},
	}
	if change != nil {
		change(&o)
	}
	var err error
	if f.Hinter, err = hinter.New(o); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) run() {
	kit.Run(f.t, func(ctx context.Context) error { return f.Run(ctx, f.out) })
}

// slow makes each list of a pod take a second.
func (f *fixture) slow() { f.runtime.SetListFault(plegtest.Delay(time.Second)) }

// announce sends a CRI event of the pod, complete but for what change makes of it.
func (f *fixture) announce(uid pleg.PodUID, change func(*pleg.Hint)) {
	h := pleg.Hint{UID: uid, At: time.Now(), Container: "c", Pod: &pleg.Pod{UID: uid}}
	if change != nil {
		change(&h)
	}
	f.runtime.AnnounceHint(h)
}

// observations returns the pods of the observations that are ready now.
func (f *fixture) observations() []string {
	var uids []string
	for {
		synctest.Wait()
		select {
		case o := <-f.out:
			uids = append(uids, string(o.UID))
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

// requireCalls requires these numbers of lists: of single pods by the hinter, and of all pods
// that it requested.
func (f *fixture) requireCalls(pods int, all int64) {
	f.t.Helper()
	if gotPods, gotAll := f.runtime.Counts().PodLists, f.lister.relists.Load(); gotPods != pods || gotAll != all {
		f.t.Errorf("%d lists of single pods and %d of all, want %d and %d", gotPods, gotAll, pods, all)
	}
}

// requireStream waits d, and checks the last report to the lister.
func (f *fixture) requireStream(d time.Duration, open bool) {
	f.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := f.lister.open.Load(); got != open {
		f.t.Errorf("the stream is open: %v, want %v", got, open)
	}
}
