package model_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	freePeriod         = time.Second
	freeListTimeout    = 3 * time.Second
	freeInspectTimeout = 4 * time.Second
	freeHungAfter      = time.Second
)

// listing is one list that the pipeline got.
type listing struct {
	at, done time.Duration
	only     pleg.PodUID // of one pod; empty for all
	pods     map[pleg.PodUID]*pleg.Pod
}

// inspection is one answer that the pipeline got, and a copy of it.
type inspection struct {
	of         *listing
	pod        *pleg.Pod
	start, end time.Duration
	status     *pleg.PodStatus
	err        error
	ended      bool // with its context
}

// freeRuntime shows a history as time passes, and records its calls and answers.
type freeRuntime struct {
	history    *history
	start      time.Time
	inspectors int
	hasEvents  bool // it has CRI events, which cause inspections and lists too

	mu          sync.Mutex
	violations  []string // of bounds, by the pipeline
	lists       int
	listEnded   time.Duration
	podLists    map[pleg.PodUID][]*listing
	listings    []*listing // those without an error, in the order of their ends
	byPod       map[*pleg.Pod]*listing
	inspections map[pleg.PodUID][]*inspection
	inFlight    map[pleg.PodUID]bool
}

func newFreeRuntime(h *history, inspectors int) *freeRuntime {
	return &freeRuntime{
		history:     h,
		start:       time.Now(),
		inspectors:  inspectors,
		podLists:    make(map[pleg.PodUID][]*listing),
		byPod:       make(map[*pleg.Pod]*listing),
		inspections: make(map[pleg.PodUID][]*inspection),
		inFlight:    make(map[pleg.PodUID]bool),
	}
}

// violate records that the pipeline broke a bound.
func (r *freeRuntime) violate(format string, args ...any) {
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

func (r *freeRuntime) now() time.Duration { return time.Since(r.start) }

// roll returns the random numbers of the n-th call of a kind. They depend only on the
// seed.
func (r *freeRuntime) roll(kind string, n int) *rand.Rand {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s %d", kind, n)
	return rand.New(rand.NewPCG(r.history.seed, hash.Sum64()))
}

// plan is the course of a call: it reads the state between two waits.
type plan struct {
	fault         fault
	before, after time.Duration
}

func (r *freeRuntime) plan(rng *rand.Rand, slow bool) plan {
	if r.now() > faultsUntil {
		return plan{before: time.Microsecond}
	}
	longest := 5 * time.Millisecond
	switch roll := rng.IntN(10); {
	case roll < 1 && slow:
		longest = 2500 * time.Millisecond
	case roll < 5:
		longest = 500 * time.Millisecond
	}
	took := func() time.Duration {
		return time.Duration(1 + rng.Int64N(int64(longest)))
	}
	p := plan{before: took(), after: took(), fault: oneOf(rng, 80, works, 8, fails, 4, panics, 4, hangs, 4, answersNil)}
	if !slow && p.fault == answersNil {
		p.fault = works // an empty list is valid
	}
	return p
}

func (r *freeRuntime) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	l := &listing{at: r.now(), pods: make(map[pleg.PodUID]*pleg.Pod)}
	r.startList(l.at)
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.listEnded = r.now()
	}()
	return r.list(ctx, l, r.roll("list", r.lists))
}

// list fills a listing and, unless it fails, records it.
func (r *freeRuntime) list(ctx context.Context, l *listing, rng *rand.Rand) ([]*pleg.Pod, error) {
	p := r.plan(rng, false)
	time.Sleep(p.before)
	pods := r.history.list(r.now())
	if l.only != "" {
		pods = slices.DeleteFunc(pods, func(pod *pleg.Pod) bool { return pod.UID != l.only })
	}
	time.Sleep(p.after)
	if err := p.fault.inject(ctx, true); err != nil {
		return pods[:len(pods)/2], err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l.done = r.now()
	for _, pod := range pods {
		l.pods[pod.UID] = pod
		r.byPod[pod] = l
	}
	r.listings = append(r.listings, l)
	return pods, nil
}

// startList requires that the list comes at the end of the period at the latest: no
// inspection may delay it.
func (r *freeRuntime) startList(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if latest := r.listEnded + freePeriod; r.lists > 0 && at > latest && !r.hasEvents {
		r.violate("list at %v, want it at %v or sooner", at, latest)
	}
	r.lists++
}

func (r *freeRuntime) PodStatus(
	ctx context.Context, pod *pleg.Pod, _ *pleg.PodStatus,
) (*pleg.PodStatus, error) {
	call, p := r.startInspection(ctx, pod)
	defer func() { r.finishInspection(ctx, pod.UID, call) }()
	if call.err = pause(ctx, p.before); call.err != nil {
		return nil, call.err
	}
	seen := r.now()
	if call.err = pause(ctx, p.after); call.err != nil {
		return nil, call.err
	}
	call.err = errPanicked // if the next line panics
	if call.err = p.fault.inject(ctx, true); call.err != nil {
		return nil, call.err
	}
	if p.fault == answersNil {
		return nil, nil
	}
	call.status = r.history.inspect(pod, seen)
	return r.history.inspect(pod, seen), nil
}

func (r *freeRuntime) startInspection(ctx context.Context, pod *pleg.Pod) (*inspection, plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, bounded := ctx.Deadline(); !bounded {
		r.violate("the inspection of pod %s has no deadline", pod.UID)
	}
	call := &inspection{of: r.byPod[pod], pod: pod, start: r.now()}
	calls := r.inspections[pod.UID]
	switch {
	case r.hasEvents: // it may be for an event
	case len(r.podLists[pod.UID]) > 0 && (call.of == nil || len(calls) > 0 && calls[len(calls)-1].of == nil): // lists were joined
	case call.of == nil:
		r.violate("pod %s is inspected, but no list had it", pod.UID)
	case len(calls) > 0 && (call.of == calls[len(calls)-1].of || call.of.done < calls[len(calls)-1].of.at):
		r.violate("pod %s is inspected for the list of %v, after that of %v",
			pod.UID, call.of.at, calls[len(calls)-1].of.at)
	}
	if r.inFlight[pod.UID] {
		r.violate("two inspections of pod %s at %v", pod.UID, call.start)
	}
	r.inspections[pod.UID] = append(calls, call)
	r.inFlight[pod.UID] = true
	if len(r.inFlight) > 2*r.inspectors { // with those that hang
		r.violate("%d inspections at %v", len(r.inFlight), call.start)
	}
	return call, r.plan(r.roll(string(pod.UID), len(calls)), true)
}

func (r *freeRuntime) finishInspection(ctx context.Context, uid pleg.PodUID, call *inspection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	call.end, call.ended = r.now(), ctx.Err() != nil
	delete(r.inFlight, uid)
}

// pause waits, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// podRuntime is a freeRuntime that can list one pod.
type podRuntime struct{ *freeRuntime }

func (r podRuntime) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	l := &listing{at: r.now(), only: uid, pods: make(map[pleg.PodUID]*pleg.Pod)}
	n := r.startPodList(l)
	defer r.finishPodList(l)
	pods, err := r.list(ctx, l, r.roll("list of "+string(uid), n))
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	return pods[0], nil
}

func (r podRuntime) startPodList(l *listing) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.podLists[l.only] = append(r.podLists[l.only], l)
	return len(r.podLists[l.only])
}

func (r podRuntime) finishPodList(l *listing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.done = r.now()
}
