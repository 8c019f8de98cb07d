package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// received is an event and when it came.
type received struct {
	pleg.Event
	when time.Duration
}

// freeBed runs a pipeline on a freeRuntime and notes what it does.
type freeBed struct {
	runtime *freeRuntime
	single  bool // the runtime can list one pod
	hinted  bool // the runtime has events
	// quarantine is the longest wait of a pod whose inspection hung; 1 for none.
	quarantine time.Duration
	p          *pipeline.Pipeline

	// Of the subscriber's goroutine, until it has ended: the events, and the
	// time of the last bookmark.
	events []received
	marked time.Time

	mu     sync.Mutex
	waited []*wait
}

func freeRunning(t *testing.T, seed uint64, inspectors int) {
	b := &freeBed{runtime: newFreeRuntime(newHistory(seed), inspectors), quarantine: 1}
	b.run(t, b.runtime)
}

func quarantined(t *testing.T, seed uint64, inspectors int) {
	b := &freeBed{runtime: newFreeRuntime(newHistory(seed), inspectors), quarantine: 5 * time.Second}
	b.runtime.hungAfter = freeHungAfter
	b.run(t, b.runtime)
}

func singlePods(t *testing.T, seed uint64, inspectors int) {
	b := &freeBed{runtime: newFreeRuntime(newHistory(seed), inspectors), single: true, quarantine: 1}
	b.run(t, podRuntime{b.runtime})
}

// run lets a history pass and judges afterwards.
func (b *freeBed) run(t *testing.T, runtime pleg.Runtime) {
	inspectors := b.runtime.inspectors
	opts := pipeline.Options{
		Runtime: runtime, Inspectors: inspectors, FixedWidth: true, RelistPeriod: freePeriod,
		ListTimeout: freeListTimeout, InspectTimeout: freeInspectTimeout,
		HungAfter: b.runtime.hungAfter, MaxQuarantine: b.quarantine,
	}
	if b.hinted {
		opts.Events, opts.RelistPeriodWithEvents = pipeline.EventsRequire, freePeriodWithEvents
	}
	var err error
	b.p, err = pipeline.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := b.p.Subscribe(pipeline.SubscribeOptions{Buffer: modelBuffer, Bookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var clients sync.WaitGroup
	go func() { ended <- b.p.Run(ctx) }()
	clients.Go(func() { b.receive(t, sub.Events()) })
	b.startClients(ctx, &clients)

	time.Sleep(historyEnd)
	cancel()
	if err := within(t, "the end of Run", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want %v", err, context.Canceled)
	}
	clients.Wait()
	b.judge(t)
}

// receive notes the events; each must find the cache at least as new.
func (b *freeBed) receive(t *testing.T, events <-chan pleg.Event) {
	var seq uint64
	for e := range events {
		if e.Type == pleg.Bookmark {
			b.mark(t, e)
			continue
		}
		if e.Seq <= seq || e.Missed != 0 {
			t.Errorf("event %+v after number %d", e, seq)
		}
		seq = e.Seq
		if !e.ObservedAt.After(b.marked) {
			t.Errorf("%v comes after the bookmark of %v", seenOf(e), b.marked)
		}
		status, _ := b.p.Cache().Get(e.PodUID)
		older := status != nil && !status.ObservedAt.IsZero() && status.ObservedAt.Before(e.ObservedAt)
		if older || !fresh(t.Context(), b.p, e.PodUID, e.ObservedAt.Add(-1)) {
			t.Errorf("%v is delivered before the cache is as new: %+v", seenOf(e), status)
		}
		b.events = append(b.events, received{Event: e, when: b.runtime.now()})
	}
}

// mark wants every pod to be as new as a bookmark says.
func (b *freeBed) mark(t *testing.T, e pleg.Event) {
	b.marked = e.ObservedAt
	for _, uid := range b.runtime.history.uids() {
		if !fresh(t.Context(), b.p, uid, e.ObservedAt.Add(-1)) {
			t.Errorf("pod %s is older than the bookmark of %v", uid, e.ObservedAt)
		}
	}
}

func (b *freeBed) startClients(ctx context.Context, clients *sync.WaitGroup) {
	h := b.runtime.history
	for _, uid := range h.uids() {
		for _, at := range h.requests[uid] {
			clients.Go(func() {
				time.Sleep(at)
				b.p.RequestReinspect(uid)
			})
		}
		for _, at := range h.relists[uid] {
			clients.Go(func() {
				time.Sleep(at)
				if !b.single {
					b.runtime.wake()
				}
				b.p.RequestRelist(uid)
			})
		}
		for _, at := range h.waits[uid] {
			clients.Go(func() {
				time.Sleep(at)
				b.wait(ctx, uid)
			})
		}
	}
}

// judge compares the whole run with the reference, pod by pod.
func (b *freeBed) judge(t *testing.T) {
	for _, broken := range b.runtime.broken {
		t.Error(broken)
	}
	lists := slices.DeleteFunc(slices.Clone(b.runtime.listings), func(l *listing) bool { return l.only != "" })
	if marked, want := b.marked.Sub(b.runtime.start), lists[len(lists)-2].at; marked < want {
		t.Errorf("the last bookmark is of %v, although all is calm at the list of %v", marked, want)
	}
	b.judgeWaits(t)
	if b.hinted {
		b.judgeHinted(t)
		return
	}
	for _, uid := range b.runtime.history.uids() {
		newReplay(t, b, uid).run()
	}
}
