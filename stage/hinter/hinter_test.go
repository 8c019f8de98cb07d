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
		for range 3 {
			b.hinter.RequestRelist("a")
		}
		b.hinter.RequestRelist("b")
		b.hinter.RequestRelist("c")
		synctest.Wait()
		b.want("lists at once", pods.asked(), []pleg.PodUID{"a", "b"})
		pass(time.Second)
		b.want("observations", len(b.take()), 2)
		pass(time.Second)
		b.want("then", b.take(), []pleg.PodUID{"c"})
		b.want("lists", pods.asked(), []pleg.PodUID{"a", "b", "c"})
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

func whole(uid pleg.PodUID) pleg.Hint {
	return pleg.Hint{UID: uid, At: time.Now(), Container: "c", Pod: &pleg.Pod{UID: uid}}
}

func TestEventsAreHandedOnInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{}
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{
			func(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
				opened()
				hint(whole("a"))
				hint(whole("b"))
				hint(whole("a"))
				<-ctx.Done()
				return context.Cause(ctx)
			},
		}}
		b := run(t, pods, events, nil)
		b.want("observations", b.take(), []pleg.PodUID{"a", "b", "a"})
		b.want("lists", len(pods.asked()), 0)
	})
}

func TestIncompleteEventRelistsThePod(t *testing.T) {
	future := whole("a")
	for name, spoil := range map[string]func(*pleg.Hint){
		"no statuses":    func(h *pleg.Hint) { h.Pod = nil },
		"no time":        func(h *pleg.Hint) { h.At = time.Time{} },
		"in the future":  func(h *pleg.Hint) { h.At = h.At.Add(time.Hour) },
		"no pod at all":  func(h *pleg.Hint) { h.UID = "" },
		"state unknown":  func(h *pleg.Hint) { h.Pod, h.State = nil, pleg.StateUnknown },
		"removed, empty": func(h *pleg.Hint) { h.Pod, h.Removed = nil, true },
		"nil container":  func(h *pleg.Hint) { h.Pod = &pleg.Pod{UID: "a", Containers: []*pleg.Container{nil}} },
		"nil sandbox":    func(h *pleg.Hint) { h.Pod = &pleg.Pod{UID: "a", Sandboxes: []*pleg.Container{nil}} },
		"another pod":    func(h *pleg.Hint) { h.Pod = &pleg.Pod{UID: "b"} },
		"nil container status": func(h *pleg.Hint) {
			h.Status = &pleg.PodStatus{UID: "a", Containers: []*pleg.ContainerStatus{nil}}
		},
		"nil sandbox status": func(h *pleg.Hint) {
			h.Status = &pleg.PodStatus{UID: "a", Sandboxes: []*pleg.SandboxStatus{nil}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := &fakePods{}
				events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{
					func(ctx context.Context, _ func(), hint func(pleg.Hint)) error {
						h := future
						h.At = time.Now()
						spoil(&h)
						hint(h)
						<-ctx.Done()
						return context.Cause(ctx)
					},
				}}
				b := run(t, pods, events, nil)
				b.take()
				if name == "no pod at all" {
					b.wantRelists(1)
				} else {
					b.want("relists of the pod", pods.asked(), []pleg.PodUID{"a"})
				}
			})
		})
	}
}

func TestFloodIsBounded(t *testing.T) {
	const flood = 100_000
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{took: time.Second}
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{
			func(ctx context.Context, _ func(), hint func(pleg.Hint)) error {
				for i := range flood {
					hint(whole(pleg.PodUID(fmt.Sprint(i))))
				}
				<-ctx.Done()
				return context.Cause(ctx)
			},
		}}
		b := run(t, pods, events, nil)
		synctest.Wait() // the stream was drained although nobody takes observations
		if relists, _ := b.lister.told(); relists == 0 {
			t.Error("what did not fit was not relisted")
		}
		if got := len(b.take()); got > 5000 {
			t.Errorf("%d observations were kept, want a bounded number", got)
		}
	})
}

func TestStreamCountsAsUpOnceProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, &fakePods{}, &fakeEvents{}, nil)
		synctest.Wait()
		b.wantStream(false)
		pass(time.Second)
		b.wantStream(true)
	})
}

func TestBrokenStreamIsOpenedAgainForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := func(context.Context, func(), func(pleg.Hint)) error { return errors.New("unavailable") }
		panics := func(context.Context, func(), func(pleg.Hint)) error { panic("embedder") }
		events := &fakeEvents{streams: slices.Concat(
			slices.Repeat([]func(context.Context, func(), func(pleg.Hint)) error{broken}, 99),
			[]func(context.Context, func(), func(pleg.Hint)) error{panics},
		)}
		b := run(t, &fakePods{}, events, nil)
		pass(time.Second)
		if n := len(events.tries()); n < 3 || n > 8 {
			t.Errorf("%d tries in the first second, want a few", n)
		}
		pass(time.Hour)
		tries := events.tries()
		b.want("tries", len(tries), 101)
		for i, at := range tries[10:] {
			if wait := at.Sub(tries[9+i]); wait < 5*time.Second || wait > 10*time.Second {
				t.Fatalf("waited %v before try %d, want 5 to 10 s", wait, 10+i)
			}
		}
		b.wantStream(true)
	})
}

func TestRuntimeWithoutEvents(t *testing.T) {
	without := func(_ context.Context, opened func(), _ func(pleg.Hint)) error {
		opened()
		return fmt.Errorf("receive: %w", pleg.ErrNoEvents)
	}
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{without, without}}
		b := run(t, &fakePods{}, events, nil)
		pass(time.Minute)
		b.want("tries in a minute", len(events.tries()), 1)
		b.wantStream(false)
		pass(time.Hour)
		b.want("tries in an hour", len(events.tries()), 3)
	})
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{without}}
		b := run(t, &fakePods{}, events, func(o *hinter.Options) { o.Required = true })
		synctest.Wait()
		select {
		case err := <-b.ended:
			if !errors.Is(err, pleg.ErrNoEvents) {
				t.Errorf("Run ended with %v, want ErrNoEvents", err)
			}
		default:
			t.Error("Run goes on without the required events")
		}
	})
}

func TestRunEndsInTheMiddleOfEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{
			func(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
				opened()
				for ctx.Err() == nil {
					hint(whole("a"))
					time.Sleep(time.Millisecond)
				}
				return context.Cause(ctx)
			},
		}}
		b := run(t, &fakePods{took: time.Minute}, events, nil)
		b.hinter.RequestRelist("b")
		pass(time.Second)
		b.stop()
		if err := <-b.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v, want context.Canceled", err)
		}
		if _, open := <-b.out; open {
			t.Error("out is still open")
		}
	})
}
