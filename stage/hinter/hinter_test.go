package hinter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeLister records what the hinter reports to the lister.
type fakeLister struct {
	mu      sync.Mutex
	relists int
	stream  []bool
	listed  time.Time
}

func (l *fakeLister) RelistNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.relists++
}

func (l *fakeLister) StreamOpened() { l.report(true) }

func (l *fakeLister) StreamEnded() { l.report(false) }

func (l *fakeLister) report(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream = append(l.stream, open)
}

func (l *fakeLister) LastSuccess() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listed
}

func (l *fakeLister) reported() (relists int, stream []bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.relists, slices.Clone(l.stream)
}

// fakePods answers a relist of one pod after a while.
type fakePods struct {
	mu   sync.Mutex
	took time.Duration
	pod  *pleg.Pod // if nil, one with the uid and nothing else
	err  error
	fail func()
	seen []pleg.PodUID
}

func (p *fakePods) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	p.mu.Lock()
	p.seen = append(p.seen, uid)
	p.mu.Unlock()
	if p.fail != nil {
		p.fail()
	}
	select {
	case <-time.After(p.took):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p.pod != nil {
		return p.pod, p.err
	}
	return &pleg.Pod{UID: uid}, p.err
}

func (p *fakePods) asked() []pleg.PodUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(slices.Values(p.seen)) // workers ask in any order
}

// fakeEvents plays one stream for each call, and then blocks.
type fakeEvents struct {
	mu      sync.Mutex
	streams []func(ctx context.Context, opened func(), hint func(pleg.Hint)) error
	opened  []time.Time
}

func (e *fakeEvents) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	e.mu.Lock()
	n := len(e.opened)
	e.opened = append(e.opened, time.Now())
	e.mu.Unlock()
	if n < len(e.streams) {
		return e.streams[n](ctx, opened, hint)
	}
	opened()
	<-ctx.Done()
	return context.Cause(ctx)
}

func (e *fakeEvents) tries() []time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.opened)
}

// noLists is the part of a runtime that the hinter does not use.
type noLists struct{}

func (noLists) ListPods(context.Context) ([]*pleg.Pod, error) { panic("the hinter lists no pods") }

func (noLists) PodStatus(context.Context, *pleg.Pod, *pleg.PodStatus) (*pleg.PodStatus, error) {
	panic("the hinter inspects no pod")
}

// guarded returns a runtime behind the border.
func guarded(t *testing.T, runtime pleg.Runtime) *border.Runtime {
	t.Helper()
	r, err := border.New(runtime, border.Options{ListTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

type fixture struct {
	t      *testing.T
	lister fakeLister
	hinter *hinter.Hinter
	out    chan stage.Observation
	ended  chan error
	stop   context.CancelFunc
}

// run starts a hinter in the bubble of t.
func run(t *testing.T, pods pleg.PodLister, events pleg.EventWatcher, change func(*hinter.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, out: make(chan stage.Observation), ended: make(chan error, 1)}
	o := hinter.Options{
		Lister: &f.lister, Relists: 2, Logger: slog.New(slog.DiscardHandler),
	}
	if pods != nil {
		o.Pods = guarded(t, struct {
			noLists
			pleg.PodLister
		}{PodLister: pods}).PodLister()
	}
	if events != nil {
		o.Events = guarded(t, struct {
			noLists
			pleg.EventWatcher
		}{EventWatcher: events}).EventWatcher()
	}
	if change != nil {
		change(&o)
	}
	var err error
	if f.hinter, err = hinter.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	go func() { f.ended <- f.hinter.Run(ctx, f.out) }()
	t.Cleanup(stop)
	return f
}

// observations returns what arrives without time passing.
func (f *fixture) observations() []pleg.PodUID {
	var uids []pleg.PodUID
	for {
		synctest.Wait()
		select {
		case o, ok := <-f.out:
			if !ok {
				return uids
			}
			uids = append(uids, o.UID)
		default:
			return uids
		}
	}
}

// pass lets time pass, and everything that was due in it happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fixture) want(what string, got, want any) {
	f.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func (f *fixture) wantRelists(want int) {
	f.t.Helper()
	got, _ := f.lister.reported()
	f.want("relists of all pods", got, want)
}

// wantStream checks the last report of the stream.
func (f *fixture) wantStream(open bool) {
	f.t.Helper()
	_, stream := f.lister.reported()
	f.want("the stream is open", len(stream) > 0 && stream[len(stream)-1], open)
}

func TestRequestsOfOnePodShareOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{took: time.Second}
		f := run(t, pods, nil, nil)
		f.hinter.RequestRelist("x")
		f.hinter.RequestRelist("y")
		synctest.Wait() // from here on requests wait, for there are two lists at a time
		for range 3 {
			f.hinter.RequestRelist("a")
		}
		f.hinter.RequestRelist("b")
		f.hinter.RequestRelist("c")
		pass(time.Second)
		f.want("observations", len(f.observations()), 2)
		f.want("lists at once", pods.asked(), []pleg.PodUID{"a", "b", "x", "y"})
		pass(time.Second)
		f.want("observations", len(f.observations()), 2)
		pass(time.Second)
		f.want("then", f.observations(), []pleg.PodUID{"c"})
		f.want("lists", pods.asked(), []pleg.PodUID{"a", "b", "c", "x", "y"})
	})
}

func TestRequestDuringAListIsServedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{took: time.Second}
		f := run(t, pods, nil, nil)
		f.hinter.RequestRelist("a")
		synctest.Wait()
		f.hinter.RequestRelist("a")
		f.hinter.RequestRelist("a")
		pass(3 * time.Second)
		f.want("observations", f.observations(), []pleg.PodUID{"a", "a"})
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
		pass(2 * time.Second)
		f.want("observations", f.observations(), []pleg.PodUID{"a"})
	})
}

func TestRequestWithoutAPodListerListsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := run(t, nil, nil, nil)
		f.hinter.RequestRelist("a")
		synctest.Wait()
		f.wantRelists(1)
	})
}

func TestFailedRelistOfAPodListsAll(t *testing.T) {
	for name, pods := range map[string]*fakePods{
		"error": {err: errors.New("unavailable")},
		"panic": {fail: func() { panic("embedder") }},
		"hang":  {took: time.Hour},

		"another pod":   {pod: &pleg.Pod{UID: "b"}},
		"nil container": {pod: &pleg.Pod{UID: "a", Containers: []*pleg.Container{nil}}},
		"nil sandbox":   {pod: &pleg.Pod{UID: "a", Sandboxes: []*pleg.Container{nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := run(t, pods, nil, nil)
				f.hinter.RequestRelist("a")
				pass(2 * time.Minute)
				f.want("observations", len(f.observations()), 0)
				f.wantRelists(1)
			})
		})
	}
}
