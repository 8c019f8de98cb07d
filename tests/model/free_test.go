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
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// received is an event and when it came.
type received struct {
	pleg.Event
	when time.Duration
}

// freeRun runs a pipeline on a freeRuntime and records what it does.
type freeRun struct {
	runtime   *freeRuntime
	hasEvents bool // the runtime has CRI events
	// quarantine is the longest wait of a pod whose inspection hung; 1 for none.
	quarantine time.Duration
	p          *pipeline.Pipeline

	// The events and the time of the last bookmark belong to the subscriber's goroutine
	// until it has ended.
	events []received
	stream *promises.Stream
	marked time.Time

	mu     sync.Mutex
	waited []*wait
}

func newFreeRun(seed uint64, inspectors int) (b *freeRun, steps []lifeEvent) {
	h, steps := newHistory(seed)
	return &freeRun{runtime: newFreeRuntime(h, inspectors), quarantine: 1}, steps
}

// run plays a history and judges afterwards.
func (b *freeRun) run(t *testing.T, runtime pleg.Runtime) {
	inspectors := b.runtime.inspectors
	opts := pipeline.Options{
		Runtime: runtime, Inspectors: inspectors, RelistPeriod: freePeriod,
		ListTimeout: freeListTimeout, InspectTimeout: freeInspectTimeout,
		MaxQuarantine: b.quarantine,
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
	b.stream = &promises.Stream{Bookmarks: true, Epoch: b.p.Epoch(), Cache: b.p.Cache(), State: promises.State{Look: b.p.Cache().Get}}
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

// receive records the events and when they come.
func (b *freeRun) receive(t *testing.T, events <-chan pleg.Event) {
	for e := range events {
		b.stream.Add(e)
		if e.Type == pleg.Bookmark {
			b.mark(t, e)
		} else {
			b.events = append(b.events, received{Event: e, when: b.runtime.now()})
		}
	}
}

// mark requires that every pod is as new as the bookmark, except those that the cache
// does not vouch for because they wait for an inspection.
func (b *freeRun) mark(t *testing.T, e pleg.Event) {
	b.marked = e.ObservedAt
	waits := make(map[pleg.PodUID]bool)
	for _, p := range b.p.Cache().Pending() {
		waits[p.UID] = true
	}
	for _, uid := range b.runtime.history.uids() {
		if !waits[uid] && !promises.Fresh(b.p.Cache(), uid, e.ObservedAt.Add(-1)) {
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
	for _, uid := range b.runtime.history.uids() {
		b.checkRequests(t, uid)
	}
	if b.hasEvents {
		b.checkWithEvents(t)
		return
	}
	if err := b.stream.Check(); err != nil {
		t.Error(err)
	}
	for _, uid := range b.runtime.history.uids() {
		newReplay(t, b, uid).run()
	}
}

// wait is one GetNewerThan, for the time of the call.
type wait struct {
	uid            pleg.PodUID
	called, waited time.Duration
	status         *pleg.PodStatus
	err            error
}

func (b *freeRun) wait(ctx context.Context, uid pleg.PodUID) {
	w := &wait{uid: uid, called: b.runtime.now()}
	w.status, w.err = b.p.Cache().GetNewerThan(ctx, uid, time.Now())
	w.status, w.err = asReference(uid, w.status, w.err)
	w.waited = b.runtime.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waited = append(b.waited, w)
}

// checkWaits requires that every wait ended well before the pipeline, with a status that
// shows everything that had happened to the pod when the wait began.
func (b *freeRun) checkWaits(t *testing.T) {
	for _, w := range b.waited {
		switch {
		case w.waited >= historyEnd:
			t.Errorf("GetNewerThan(%s) at %v has not returned by %v", w.uid, w.called, w.waited)
		case w.err != nil:
			b.checkError(t, w)
		default:
			b.checkStatus(t, w)
		}
	}
}

// checkError requires a failed inspection for a list after the call.
func (b *freeRun) checkError(t *testing.T, w *wait) {
	for _, call := range b.runtime.inspections[w.uid] {
		began := call.start
		if call.of != nil {
			began = call.of.at
		}
		if call.status == nil && began > w.called && call.end <= w.waited {
			return
		}
	}
	t.Errorf("GetNewerThan(%s) at %v returned the error of an older inspection at %v: %v", w.uid, w.called, w.waited, w.err)
}

// checkStatus relies on the fact that containers only go forward: each container must be
// at least as far as it was at the call, and at most as far as at the return.
func (b *freeRun) checkStatus(t *testing.T, w *wait) {
	h := b.runtime.history
	first, last := ranks(h, w.uid, w.called), ranks(h, w.uid, w.waited)
	got := statusRanks(w.status)
	for id, least := range first {
		rank, ok := got[id]
		if !ok && b.hasEvents && elsewhere(h, w, id) {
			continue
		}
		if !ok {
			rank = promises.Removed
		}
		if rank < least || rank > last[id] {
			t.Errorf("GetNewerThan(%s) at %v returned at %v: container %s is at %d, want %d to %d; status %+v",
				w.uid, w.called, w.waited, id, rank, least, last[id], w.status)
		}
	}
}

// elsewhere reports whether a container belongs to a sandbox that is not in the status
// of a wait: an event has one sandbox, and the event of another sandbox may be lost.
func elsewhere(h *history, w *wait, id pleg.ContainerID) bool {
	sandbox := id
	for _, v := range h.pods[w.uid] {
		if c := in(v.containers, id); c != nil {
			sandbox = c.SandboxID
		}
	}
	return len(w.status.Sandboxes) > 0 && !slices.ContainsFunc(w.status.Sandboxes, func(s *pleg.SandboxStatus) bool { return s.ID == sandbox })
}

// waits requires that every wait for the pod returned exactly when the first listing
// after its call was applied to the pod.
func (r *replay) waits(observations []*observation) {
	type applied struct{ at, when time.Duration }
	var all []applied
	var last *observation
	for _, o := range append(slices.Clone(observations), nil) {
		for _, l := range r.passedOver(last, o) {
			when := l.done
			if last != nil && last.settled > when {
				when = last.settled
			}
			all = append(all, applied{l.at, when})
		}
		if o != nil {
			all = append(all, applied{o.of.at, o.settled})
		}
		last = o
	}
	for _, w := range r.freeRun.waited {
		if w.uid != r.uid {
			continue
		}
		i := slices.IndexFunc(all, func(a applied) bool { return a.at > w.called })
		if i < 0 {
			r.t.Errorf("GetNewerThan(%s) at %v returned at %v, but no later list was applied", w.uid, w.called, w.waited)
		} else if a := all[i]; w.waited != a.when {
			r.t.Errorf("GetNewerThan(%s) at %v returned at %v, want at %v, when the list of %v was applied",
				w.uid, w.called, w.waited, a.when, a.at)
		}
	}
}

// ranks returns how far each container that the pod ever had is at a time.
func ranks(h *history, uid pleg.PodUID, t time.Duration) map[pleg.ContainerID]promises.Step {
	ranks := make(map[pleg.ContainerID]promises.Step)
	for _, v := range h.pods[uid] {
		if v.from > t {
			break
		}
		for id := range ranks {
			ranks[id] = promises.Removed
		}
		for _, c := range v.containers {
			ranks[c.ID] = promises.StateSteps[c.State]
		}
		for _, s := range v.sandboxes {
			ranks[s.ID] = promises.StateSteps[s.State]
		}
	}
	return ranks
}

func statusRanks(s *pleg.PodStatus) map[pleg.ContainerID]promises.Step {
	ranks := make(map[pleg.ContainerID]promises.Step)
	for _, c := range s.Containers {
		ranks[c.ID] = promises.StateSteps[c.State]
	}
	for _, sandbox := range s.Sandboxes {
		ranks[sandbox.ID] = promises.Died
		if sandbox.Ready {
			ranks[sandbox.ID] = promises.Started
		}
	}
	return ranks
}
