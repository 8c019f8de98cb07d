package model_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// freePeriodWithEvents leaves time for two lists of all pods after the last change.
const freePeriodWithEvents = 8 * time.Second

// delivery is a CRI event with the time at which the stream delivers it, and what is
// changed in it.
type delivery struct {
	at    time.Duration
	of    lifeEvent
	spoil func(*pleg.Hint)
}

// eventRuntime is a podRuntime with CRI events.
type eventRuntime struct {
	podRuntime
	deliveries []delivery
	breaks     int // mean number of events until the stream breaks; 0 for never

	mu  sync.Mutex
	rng *rand.Rand
}

func withEvents(t *testing.T, seed uint64, inspectors int) {
	b, steps := newFreeRun(seed, inspectors)
	b.hasEvents, b.runtime.hasEvents = true, true
	rng := rand.New(rand.NewPCG(seed, 3))
	r := &eventRuntime{podRuntime: podRuntime{b.runtime}, rng: rng, breaks: []int{0, 40, 8}[rng.IntN(3)]}
	loss, late := []float64{0, 0.1, 0.6}[rng.IntN(3)], []float64{0, 0.3, 0.8}[rng.IntN(3)]
	for _, e := range steps {
		for rng.IntN(8) == 0 { // twice, or more often
			r.deliver(e, late)
		}
		if rng.Float64() >= loss {
			r.deliver(e, late)
		}
	}
	slices.SortStableFunc(r.deliveries, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
	b.run(t, r)
}

// deliver plans the delivery of an event.
func (r *eventRuntime) deliver(e lifeEvent, late float64) {
	d := delivery{at: e.at, of: e, spoil: func(*pleg.Hint) {}}
	if r.rng.Float64() < late {
		d.at += time.Duration(r.rng.Int64N(int64([]time.Duration{time.Millisecond, 50 * time.Millisecond, 4 * time.Second}[r.rng.IntN(3)])))
	}
	if r.rng.IntN(3) == 0 {
		d.spoil = spoilers[r.rng.IntN(len(spoilers))]
	}
	r.deliveries = append(r.deliveries, d)
}

// spoilers remove from an event what runtimes leave out, or make it malformed.
var spoilers = []func(*pleg.Hint){
	func(h *pleg.Hint) { h.Status = nil },
	func(h *pleg.Hint) { h.Status.Containers = nil },
	func(h *pleg.Hint) { h.Status.Sandboxes = nil },
	func(h *pleg.Hint) { h.Pod, h.Status = nil, nil },
	func(h *pleg.Hint) { h.Pod, h.Status, h.State = nil, nil, pleg.StateUnknown },
	func(h *pleg.Hint) { h.At = time.Time{} },
	func(h *pleg.Hint) { h.At = h.At.Add(time.Hour) },
	func(h *pleg.Hint) { h.UID = "" },
	func(h *pleg.Hint) { h.Pod.UID = "another" },
	func(h *pleg.Hint) { h.Pod.Containers = append(h.Pod.Containers, nil) },
	func(h *pleg.Hint) {
		*h = pleg.Hint{UID: "nobody", At: h.At, Container: "nothing", Sandbox: "nowhere", State: pleg.StateRunning}
	},
}

// WatchEvents delivers the events from now on, and sometimes older ones.
func (r *eventRuntime) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	opened()
	from := r.now()
	if r.roll(3) == 0 {
		from -= time.Second
	}
	for _, d := range r.deliveries {
		if d.at < from {
			continue
		}
		select {
		case <-time.After(d.at - r.now()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		h := r.history.hint(d.of, r.start)
		d.spoil(&h)
		hint(h)
		switch {
		case r.breaks == 0 || r.roll(r.breaks) > 0:
		case r.roll(3) == 0:
			panic("the stream panics")
		default:
			return errors.New("the stream breaks")
		}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (r *eventRuntime) roll(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}

// hint returns the CRI event of a lifeEvent, with the sandbox as it was then.
func (h *history) hint(e lifeEvent, start time.Time) pleg.Hint {
	v := h.at(e.uid, e.at)
	other := func(c pleg.Container) bool { return c.ID != e.sandbox && c.SandboxID != e.sandbox }
	pod := newPod(e.uid, slices.DeleteFunc(slices.Clone(v.containers), other), slices.DeleteFunc(slices.Clone(v.sandboxes), other))
	return pleg.Hint{
		UID: e.uid, At: start.Add(e.at), Container: e.container, Sandbox: e.sandbox, State: e.state, Removed: e.removed,
		Pod: pod, Status: h.inspect(pod, e.at),
	}
}

// checkWithEvents compares the end with the history, and requires that the events of
// each pod lead there.
func (b *freeRun) checkWithEvents(t *testing.T) {
	h := b.runtime.history
	b.stream.History, b.stream.Truth = h.lives(), h.truth(historyEnd)
	if err := b.stream.Check(); err != nil {
		t.Error(err)
	}
	for _, uid := range h.uids() {
		got, err := b.p.Cache().Get(uid)
		got, err = asReference(uid, got, err)
		want := &pleg.PodStatus{UID: uid}
		if v := h.at(uid, historyEnd); !v.gone() {
			want = h.inspect(newPod(uid, v.containers, v.sandboxes), historyEnd)
		}
		if err != nil || !reflect.DeepEqual(timeless(got), timeless(want)) {
			t.Errorf("the end of pod %s\n\tpipeline: %+v, %v\n\thistory:  %+v", uid, got, err, want)
		}
		b.checkOrder(t, uid)
	}
}

// timeless returns a status without its time, and without the addresses of a pod that
// is not ready: only a pipeline that saw it ready knows them.
func timeless(s *pleg.PodStatus) *pleg.PodStatus {
	if s == nil {
		return nil
	}
	plain := *s
	plain.ObservedAt = time.Time{}
	if !s.SandboxReady() {
		plain.IPs = nil
	}
	return &plain
}

// lives returns what the containers went through.
func (h *history) lives() *promises.History {
	lives := promises.NewHistory()
	var times []time.Duration
	for _, life := range h.pods {
		for _, v := range life {
			times = append(times, v.from)
		}
	}
	slices.Sort(times)
	for _, at := range times {
		lives.Record(h.truth(at))
	}
	return lives
}

// truth returns what every pod is at a time.
func (h *history) truth(at time.Duration) promises.Truth {
	var entries []cache.Entry
	for _, pod := range h.list(at) {
		entries = append(entries, cache.Entry{UID: pod.UID, Status: h.inspect(pod, at)})
	}
	return promises.CachedTruth(entries)
}

// checkOrder requires that none of a pod's events comes before it is true.
func (b *freeRun) checkOrder(t *testing.T, uid pleg.PodUID) {
	for _, e := range b.events {
		if e.PodUID != uid || e.Type == pleg.PodSync {
			continue
		}
		if so := ranks(b.runtime.history, uid, e.when)[e.ContainerID]; so < promises.EventSteps[e.Type] {
			t.Errorf("pod %s: %s at %v, but the container was only at %d", uid, plegtest.Words(e.Event), e.when, so)
		}
	}
}

// checkRequests requires an inspection after each request, unless the pod was gone at
// some time after it.
func (b *freeRun) checkRequests(t *testing.T, uid pleg.PodUID) {
	h := b.runtime.history
	for _, at := range h.requests[uid] {
		gone := h.at(uid, at).gone() || slices.ContainsFunc(h.pods[uid], func(v version) bool { return v.from > at && v.gone() })
		if !gone && !slices.ContainsFunc(b.runtime.inspections[uid], func(call *inspection) bool { return call.start > at }) {
			t.Errorf("pod %s: the reinspection requested at %v was not made", uid, at)
		}
	}
}
