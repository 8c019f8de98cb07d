// Package serial has the algorithm of the kubelet's pod lifecycle event generator
// (GenericPLEG of Kubernetes v1.37) on the types of package pleg: one goroutine
// lists all pods, compares, and inspects one changed pod after the other.
//
// The benchmarks compare the pipeline with it, and tests require that the pipeline
// has the same events and cache. It therefore keeps the kubelet's weaknesses: a
// slow inspection delays every pod behind it, and an event that does not fit into
// the channel is discarded.
//
// Four differences from the kubelet are intended. Events have typed fields and a
// number. The known addresses of a pod survive a failed inspection. An answer
// without a status is an error, not a crash. A removed pod that never had a
// container leaves no record.
//
// As in the kubelet, a panic in the runtime is not caught.
package serial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

var errNoStatus = errors.New("runtime answered without a status")

// record is what is known of one pod: old as of its last settled inspection,
// current as of the newest list. A nil pod does not exist.
type record struct {
	old, current *pleg.Pod
	seen         *pleg.Pod       // the newest list that had the pod
	good         *pleg.PodStatus // the last successful inspection
}

type entry struct {
	status *pleg.PodStatus
	err    error
}

// PLEG generates pod lifecycle events from periodic lists.
//
// Apply must not be called concurrently.
// RequestReinspect and Status may be called at any time.
type PLEG struct {
	runtime pleg.Runtime
	events  chan<- pleg.Event
	timeout time.Duration // of one inspection
	records map[pleg.PodUID]*record
	seq     uint64

	mu        sync.Mutex // guards what follows
	reinspect map[pleg.PodUID]struct{}
	cache     map[pleg.PodUID]entry
}

// New returns a PLEG without pods. events should be buffered: an event that does not fit is
// discarded, as in the kubelet's channel of 1000. It is never closed. timeout bounds one
// PodStatus.
func New(rt pleg.Runtime, events chan<- pleg.Event, timeout time.Duration) *PLEG {
	return &PLEG{
		runtime: rt, events: events, timeout: timeout,
		records:   make(map[pleg.PodUID]*record),
		reinspect: make(map[pleg.PodUID]struct{}),
		cache:     make(map[pleg.PodUID]entry),
	}
}

// Apply compares a list of all pods, begun at the given time, with the records,
// and inspects and reports the changed pods in no particular order. If ctx ends, the
// remaining records stay unchanged.
func (p *PLEG) Apply(ctx context.Context, at time.Time, pods []*pleg.Pod) {
	for _, r := range p.records {
		r.current = nil
	}
	for _, pod := range pods {
		r := p.records[pod.UID]
		if r == nil {
			r = &record{}
			p.records[pod.UID] = r
		}
		r.current, r.seen = pod, pod
	}
	for uid, r := range p.records {
		if ctx.Err() != nil {
			return
		}
		p.reconcile(ctx, uid, r, at)
	}
}

func (p *PLEG) reconcile(ctx context.Context, uid pleg.PodUID, r *record, at time.Time) {
	events := Events(r.old, r.current)
	asked := p.clearReinspect(uid)
	if len(events) == 0 && !asked {
		if r.current == nil {
			p.forget(uid)
		}
		return
	}
	if r.current == nil {
		p.forget(uid)
	} else if p.inspect(ctx, r, at) != nil {
		// The record stays: the next relist finds the change again.
		p.RequestReinspect(uid)
		return
	}
	if len(events) == 0 {
		events = []pleg.Event{podSync(r.seen)}
	}
	r.old = r.current
	p.send(events, r.good, at)
}

// inspect writes the status of the listed pod, or the error of its inspection, to
// the cache.
func (p *PLEG) inspect(ctx context.Context, r *record, at time.Time) error {
	pod := r.current
	callCtx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	answer, err := p.runtime.PodStatus(callCtx, pod, nil)
	if err == nil && answer == nil {
		err = errNoStatus
	}
	if err != nil {
		if ctx.Err() != nil {
			return err // the call was cancelled: not an error of the pod
		}
		err = fmt.Errorf("inspect pod %s: %w", pod.UID, err)
		p.set(pod.UID, entry{err: err})
		return err
	}
	status := *answer
	status.ObservedAt = at
	if len(status.IPs) == 0 && r.good != nil && !status.SandboxReady() {
		status.IPs = r.good.IPs
	}
	r.good = &status
	p.set(pod.UID, entry{status: &status})
	return nil
}

// send numbers the events of one pod and delivers them without waiting. status is
// that of the last successful inspection; of a removed pod it is older than the
// events.
func (p *PLEG) send(events []pleg.Event, status *pleg.PodStatus, at time.Time) {
	for _, e := range events {
		if e.Type == stage.ContainerChanged {
			continue
		}
		describe(&e, status.Container(e.ContainerID))
		p.seq++
		e.Seq, e.ObservedAt = p.seq, at
		select {
		case p.events <- e:
		default:
		}
	}
}

// describe adds what the last inspection knows of the container that started or died;
// how it died only if the inspection saw it exited.
func describe(e *pleg.Event, c *pleg.ContainerStatus) {
	died := e.Type == pleg.ContainerDied
	if c == nil || !died && e.Type != pleg.ContainerStarted {
		return
	}
	e.Image, e.StartedAt = c.Image, c.StartedAt
	if died && c.State == pleg.StateExited {
		e.ExitCode, e.Reason, e.FinishedAt = &c.ExitCode, c.Reason, c.FinishedAt
	}
}

// RequestReinspect makes the next relist inspect the pod even without a change. A
// request for an unknown pod waits until a list has it.
func (p *PLEG) RequestReinspect(uid pleg.PodUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reinspect[uid] = struct{}{}
}

// Status returns the pod's last status, or the error of its last inspection.
// The status of an unknown pod has only its UID.
func (p *PLEG) Status(uid pleg.PodUID) (*pleg.PodStatus, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.cache[uid]
	if !ok {
		return &pleg.PodStatus{UID: uid}, nil
	}
	return e.status, e.err
}

// clearReinspect reports whether there is a request, and removes it before the
// inspection begins: a request during the inspection waits for the next relist.
func (p *PLEG) clearReinspect(uid pleg.PodUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.reinspect[uid]
	delete(p.reinspect, uid)
	return ok
}

func (p *PLEG) set(uid pleg.PodUID, e entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cache[uid] = e
}

// forget drops a removed pod.
func (p *PLEG) forget(uid pleg.PodUID) {
	delete(p.records, uid)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.cache, uid)
}
