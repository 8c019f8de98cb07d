package model_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// received is an event and when it came.
type received struct {
	pleg.Event
	when time.Duration
}

// freeRun runs a pipeline on a freeRuntime and records what it does.
type freeRun struct {
	runtime   *freeRuntime
	listsPods bool // the runtime can list one pod
	hasEvents bool // the runtime has CRI events
	// quarantine is the longest wait of a pod whose inspection hung; 1 for none.
	quarantine time.Duration
	p          *pipeline.Pipeline

	// The events and the time of the last bookmark belong to the subscriber's goroutine
	// until it has ended.
	events []received
	marked time.Time

	mu     sync.Mutex
	waited []*wait
}

func newFreeRun(h *history, inspectors int) *freeRun {
	return &freeRun{runtime: newFreeRuntime(h, inspectors), quarantine: 1}
}

// run plays a history and judges afterwards.
func (b *freeRun) run(t *testing.T, runtime pleg.Runtime) {
	inspectors := b.runtime.inspectors
	opts := pipeline.Options{
		Runtime: runtime, Inspectors: inspectors, FixedWidth: true, RelistPeriod: freePeriod,
		ListTimeout: freeListTimeout, InspectTimeout: freeInspectTimeout,
		HungAfter: b.runtime.hungAfter, MaxQuarantine: b.quarantine,
	}
	if b.hasEvents {
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
	var clients sync.WaitGroup
	stop := kit.Run(t, b.p.Run)
	clients.Go(func() { b.receive(t, sub.Events()) })
	b.startClients(ctx, &clients)

	time.Sleep(historyEnd)
	cancel()
	_ = stop() // kit.Run reports the error
	clients.Wait()
	b.check(t)
}

// receive records the events; at each the cache must be at least as new.
func (b *freeRun) receive(t *testing.T, events <-chan pleg.Event) {
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
			t.Errorf("%s comes after the bookmark of %v", describe(e), b.marked)
		}
		status, _ := b.p.Cache().Get(e.PodUID)
		older := status != nil && !status.ObservedAt.IsZero() && status.ObservedAt.Before(e.ObservedAt)
		if older || !kit.Fresh(b.p.Cache(), e.PodUID, e.ObservedAt.Add(-1)) {
			t.Errorf("%s comes before the cache is as new: %+v", describe(e), status)
		}
		b.events = append(b.events, received{Event: e, when: b.runtime.now()})
	}
}

// mark requires that every pod is as new as the bookmark.
func (b *freeRun) mark(t *testing.T, e pleg.Event) {
	b.marked = e.ObservedAt
	for _, uid := range b.runtime.history.uids() {
		if !kit.Fresh(b.p.Cache(), uid, e.ObservedAt.Add(-1)) {
			t.Errorf("pod %s is older than the bookmark of %v", uid, e.ObservedAt)
		}
	}
}

func (b *freeRun) startClients(ctx context.Context, clients *sync.WaitGroup) {
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
				if !b.listsPods {
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

// check compares the whole run with the reference, pod by pod.
func (b *freeRun) check(t *testing.T) {
	for _, violation := range b.runtime.violations {
		t.Error(violation)
	}
	lists := slices.DeleteFunc(slices.Clone(b.runtime.listings), func(l *listing) bool { return l.only != "" })
	if marked, want := b.marked.Sub(b.runtime.start), lists[len(lists)-2].at; marked < want {
		t.Errorf("the last bookmark is of %v, although all had settled at the list of %v", marked, want)
	}
	b.checkWaits(t)
	if b.hasEvents {
		b.checkWithEvents(t)
		return
	}
	for _, uid := range b.runtime.history.uids() {
		newReplay(t, b, uid).run()
	}
}
