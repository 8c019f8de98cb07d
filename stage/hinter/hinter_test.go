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

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeLister notes what the hinter tells the lister.
type fakeLister struct {
	mu      sync.Mutex
	relists int
	stream  []bool
	listed  time.Time
}

func (l *fakeLister) Relist() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.relists++
}

func (l *fakeLister) SetStream(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream = append(l.stream, up)
}

func (l *fakeLister) Listed() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listed
}

func (l *fakeLister) told() (relists int, stream []bool) {
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

type bed struct {
	t      *testing.T
	lister fakeLister
	hinter *hinter.Hinter
	out    chan stage.Observation
	ended  chan error
	stop   context.CancelFunc
}

// run starts a hinter in the bubble of t.
func run(t *testing.T, pods pleg.PodLister, events pleg.EventWatcher, change func(*hinter.Options)) *bed {
	t.Helper()
	b := &bed{t: t, out: make(chan stage.Observation), ended: make(chan error, 1)}
	o := hinter.Options{
		Pods: pods, Events: events, Lister: &b.lister, Relists: 2, ListTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	var err error
	if b.hinter, err = hinter.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	b.stop = stop
	go func() { b.ended <- b.hinter.Run(ctx, b.out) }()
	t.Cleanup(stop)
	return b
}

// take returns the observations that can be had without time passing.
func (b *bed) take() []pleg.PodUID {
	var uids []pleg.PodUID
	for {
		synctest.Wait()
		select {
		case o, ok := <-b.out:
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

func (b *bed) want(what string, got, want any) {
	b.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func (b *bed) wantRelists(want int) {
	b.t.Helper()
	got, _ := b.lister.told()
	b.want("relists of all pods", got, want)
}

// wantStream checks what the lister was told last of the stream.
func (b *bed) wantStream(up bool) {
	b.t.Helper()
	_, stream := b.lister.told()
	b.want("the stream is up", len(stream) > 0 && stream[len(stream)-1], up)
}

func TestRequestsOfOnePodShareOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{took: time.Second}
		b := run(t, pods, nil, nil)
		b.hinter.RequestRelist("x")
		b.hinter.RequestRelist("y")
		synctest.Wait() // from here on requests wait, for there are two lists at a time
		for range 3 {
			b.hinter.RequestRelist("a")
		}
		b.hinter.RequestRelist("b")
		b.hinter.RequestRelist("c")
		pass(time.Second)
		b.want("observations", len(b.take()), 2)
		b.want("lists at once", pods.asked(), []pleg.PodUID{"a", "b", "x", "y"})
		pass(time.Second)
		b.want("observations", len(b.take()), 2)
		pass(time.Second)
		b.want("then", b.take(), []pleg.PodUID{"c"})
		b.want("lists", pods.asked(), []pleg.PodUID{"a", "b", "c", "x", "y"})
	})
}

func TestRequestDuringAListIsServedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{took: time.Second}
		b := run(t, pods, nil, nil)
		b.hinter.RequestRelist("a")
		synctest.Wait()
		b.hinter.RequestRelist("a")
		b.hinter.RequestRelist("a")
		pass(3 * time.Second)
		b.want("observations", b.take(), []pleg.PodUID{"a", "a"})
	})
}

func TestRequestCoveredByANewerListingIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{took: time.Second}
		b := run(t, pods, nil, func(o *hinter.Options) { o.Relists = 1 })
		b.hinter.RequestRelist("a")
		b.hinter.RequestRelist("b")
		synctest.Wait()
		b.lister.mu.Lock()
		b.lister.listed = time.Now().Add(time.Millisecond)
		b.lister.mu.Unlock()
		pass(2 * time.Second)
		b.want("observations", b.take(), []pleg.PodUID{"a"})
	})
}

func TestRequestWithoutAPodListerListsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, nil, nil, nil)
		b.hinter.RequestRelist("a")
		synctest.Wait()
		b.wantRelists(1)
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
				b := run(t, pods, nil, nil)
				b.hinter.RequestRelist("a")
				pass(2 * time.Minute)
				b.want("observations", len(b.take()), 0)
				b.wantRelists(1)
			})
		})
	}
}
