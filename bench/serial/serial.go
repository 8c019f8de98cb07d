// Package serial contains the algorithm of the kubelet's pod lifecycle event generator
// (GenericPLEG of Kubernetes v1.37) on the types of package pleg: one goroutine
// lists all pods, compares, and inspects one changed pod after the other.
//
// The benchmarks compare the pipeline with it, and tests require that the pipeline
// yields the same events and cache. It therefore keeps the kubelet's weaknesses: a
// slow inspection delays every pod behind it, and an event that does not fit into
// the channel is discarded.
//
// Four differences from the kubelet are intended. Events have typed fields and a
// number. The known addresses of a pod survive a failed inspection. An answer
// without a status is an error, not a crash. A removed pod without a container leaves no record.
//
// As in the kubelet, a panic in the runtime is not caught.
package serial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

var errNoStatus = errors.New("runtime answered without a status")

// record is the known state of one pod: old as of its last settled inspection, current as of the
// newest list. A nil pod does not exist.
type record struct {
	old, current *pleg.Pod
	seen         *pleg.Pod       // the newest list that showed the pod
	good         *pleg.PodStatus // the last successful inspection
	err          error           // of the last inspection
}

// PLEG generates pod lifecycle events from periodic lists. Its methods must not be called
// concurrently, but a runtime may call RequestReinspect during an inspection.
type PLEG struct {
	runtime   pleg.Runtime
	events    chan<- pleg.Event
	timeout   time.Duration // of one inspection
	records   map[pleg.PodUID]*record
	reinspect map[pleg.PodUID]bool
	seq       uint64
}

// New returns a PLEG without pods. events should be buffered: an event that does not fit is
// discarded, as in the kubelet's channel of 1000. It is never closed. timeout bounds one
// PodStatus.
func New(rt pleg.Runtime, events chan<- pleg.Event, timeout time.Duration) *PLEG {
	return &PLEG{
		runtime: rt, events: events, timeout: timeout,
		records: make(map[pleg.PodUID]*record), reinspect: make(map[pleg.PodUID]bool),
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
	asked := p.reinspect[uid]
	delete(p.reinspect, uid) // before the inspection: a request during it waits for the next relist
	if r.current == nil {
		delete(p.records, uid)
	}
	if len(events) == 0 && !asked {
		return
	}
	if r.current != nil && p.inspect(ctx, r, at) != nil {
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

// inspect keeps the status of the listed pod, or the error of its inspection.
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
		r.err = fmt.Errorf("inspect pod %s: %w", pod.UID, err)
		return r.err
	}
	status := *answer
	status.ObservedAt = at
	if len(status.IPs) == 0 && r.good != nil && !status.SandboxReady() {
		status.IPs = r.good.IPs
	}
	r.good, r.err = &status, nil
	return nil
}

// send numbers the events of one pod and delivers them without waiting. status comes from the last
// successful inspection; of a removed pod it is older than the events.
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

// describe adds the last inspection's facts about the container that started or died. It adds the
// exit code only if the inspection saw the container exited.
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
// request for an unknown pod waits until a list contains it.
func (p *PLEG) RequestReinspect(uid pleg.PodUID) { p.reinspect[uid] = true }

// Status returns the pod's last status, or the error of its last inspection.
// The status of an unknown pod contains only its UID.
func (p *PLEG) Status(uid pleg.PodUID) (*pleg.PodStatus, error) {
	switch r := p.records[uid]; {
	case r != nil && r.err != nil:
		return nil, r.err
	case r != nil && r.good != nil:
		return r.good, nil
	}
	return &pleg.PodStatus{UID: uid}, nil
}
