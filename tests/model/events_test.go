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

	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
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
	h, events := newEventHistory(seed)
	b := &freeRun{runtime: newFreeRuntime(h, inspectors), listsPods: true, hasEvents: true, quarantine: 1}
	b.runtime.hasEvents = true
	rng := rand.New(rand.NewPCG(seed, 3))
	r := &eventRuntime{podRuntime: podRuntime{b.runtime}, rng: rng, breaks: []int{0, 40, 8}[rng.IntN(3)]}
	loss, late := []float64{0, 0.1, 0.6}[rng.IntN(3)], []float64{0, 0.3, 0.8}[rng.IntN(3)]
	for _, e := range events {
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
		if r.breaks > 0 && r.roll(r.breaks) == 0 {
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

// finalState is a runtime for the reference, with the pods at the end.
type finalState struct{ h *history }

func (l finalState) ListPods(context.Context) ([]*pleg.Pod, error) { return l.h.list(historyEnd), nil }

func (l finalState) PodStatus(_ context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	return l.h.inspect(pod, historyEnd), nil
}

// checkWithEvents compares the end with a reference that saw only the end, and requires
// that the events of each pod lead there.
func (b *freeRun) checkWithEvents(t *testing.T) {
	rt := b.runtime
	events := make(chan pleg.Event, modelBuffer)
	ref, err := serial.New(finalState{rt.history}, serial.Options{Events: events})
	if err != nil {
		t.Fatal(err)
	}
	ref.Apply(t.Context(), rt.start.Add(historyEnd), rt.history.list(historyEnd))
	final := byPod(kit.Drain(events))
	for _, uid := range rt.history.uids() {
		got, gotErr := b.p.Cache().Get(uid)
		want, wantErr := ref.Status(uid)
		if gotErr != nil || wantErr != nil || !reflect.DeepEqual(timeless(got), timeless(want)) {
			t.Errorf("the end of pod %s\n\tpipeline:  %+v, %v\n\treference: %+v, %v", uid, got, gotErr, want, wantErr)
		}
		b.checkOrder(t, uid, final[uid])
		b.checkRequests(t, uid)
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

// checkOrder requires that a pod's events go forward, that none comes before it is true,
// and that they end where the reference's end.
func (b *freeRun) checkOrder(t *testing.T, uid pleg.PodUID, final []seen) {
	after := map[pleg.EventType][]pleg.EventType{
		pleg.ContainerStarted: {""},
		pleg.ContainerDied:    {"", pleg.ContainerStarted},
		pleg.ContainerRemoved: {pleg.ContainerDied},
	}
	rank := map[pleg.EventType]int{pleg.ContainerStarted: running, pleg.ContainerDied: exited, pleg.ContainerRemoved: removed}
	last := make(map[pleg.ContainerID]pleg.EventType)
	for _, e := range b.events {
		if e.PodUID != uid || e.Type == pleg.PodSync {
			continue
		}
		if !slices.Contains(after[e.Type], last[e.ContainerID]) {
			t.Errorf("pod %s: %v after %q of the same container", uid, seenOf(e.Event), last[e.ContainerID])
		}
		if so := ranks(b.runtime.history, uid, e.when)[e.ContainerID]; so < rank[e.Type] {
			t.Errorf("pod %s: %v at %v, but the container was only at %d", uid, seenOf(e.Event), e.when, so)
		}
		last[e.ContainerID] = e.Type
	}
	for _, e := range final {
		if last[e.ContainerID] != e.Type {
			t.Errorf("pod %s: the last event of %s is %q, the reference has %v", uid, e.ContainerID, last[e.ContainerID], e)
		}
		delete(last, e.ContainerID)
	}
	v := b.runtime.history.at(uid, historyEnd)
	for id, e := range last {
		if in(v.containers, id) == nil && in(v.sandboxes, id) == nil && e != pleg.ContainerRemoved {
			t.Errorf("pod %s: the last event of %s, which is gone, is %q", uid, id, e)
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
