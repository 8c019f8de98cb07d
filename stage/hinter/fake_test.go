package hinter_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// fakePods lists one pod at a time, and records which.
type fakePods struct {
	mu   sync.Mutex
	took time.Duration
	pod  *pleg.Pod // if nil, one with only the UID
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

func (p *fakePods) relisted() []pleg.PodUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(slices.Values(p.seen)) // the lists run concurrently
}

// stream is one call of WatchEvents.
type stream func(ctx context.Context, opened func(), hint func(pleg.Hint)) error

// streamOf returns a runtime with an event stream that stays open after send has
// returned.
func streamOf(send func(hint func(pleg.Hint))) *fakeEvents {
	return &fakeEvents{streams: []stream{func(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
		opened()
		send(hint)
		return plegtest.Hang(ctx)
	}}}
}

// fakeEvents has one stream for each call. Further calls get a stream without CRI
// events.
type fakeEvents struct {
	mu      sync.Mutex
	streams []stream
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
	return plegtest.Hang(ctx)
}

func (e *fakeEvents) tries() []time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.opened)
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

// testHinter runs a test with a hinter in a bubble.
func testHinter(t *testing.T, pods pleg.PodLister, events pleg.EventWatcher, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(run(t, pods, events, nil)) })
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
			pleg.Runtime // nil: no other call is made
			pleg.PodLister
		}{PodLister: pods}).PodLister()
	}
	if events != nil {
		o.Events = guarded(t, struct {
			pleg.Runtime
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

// observations returns the pods of the observations that are ready now.
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

// sleep waits d and until the hinter is idle.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fixture) require(name string, got, want any) {
	f.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.t.Errorf("%s: got %v, want %v", name, got, want)
	}
}

func (f *fixture) requireRelists(want int) {
	f.t.Helper()
	f.require("relists of all pods", f.lister.relists.Load(), want)
}

// requireStream checks the last report to the lister.
func (f *fixture) requireStream(open bool) {
	f.t.Helper()
	f.require("the stream is open", f.lister.open.Load(), open)
}
