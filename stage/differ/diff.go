package differ

import (
	"cmp"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// transition returns the types of the events for a container that goes from one kind to
// another (kubelet v1.37, generateEvents).
func transition(from, to kind) []pleg.EventType {
	switch {
	case from == to:
		return nil
	case to == running:
		return []pleg.EventType{pleg.ContainerStarted}
	case to == exited:
		return []pleg.EventType{pleg.ContainerDied}
	case to == changed:
		return []pleg.EventType{stage.ContainerChanged}
	case from == exited:
		return []pleg.EventType{pleg.ContainerRemoved}
	default:
		return []pleg.EventType{pleg.ContainerDied, pleg.ContainerRemoved}
	}
}

// events returns the events of a pod between two answers; either answer may be nil. over are the
// containers that have come and gone in between. The order is the kubelet's
// (getContainersFromPods): the old pod's containers, its sandboxes, then those that only the new
// pod contains.
//
// The kubelet knows no more than the two answers. Otherwise the steps of a container continue from
// its last reported state: each step is reported once, whatever states are listed in between.
func events(old, cur *pleg.Pod, over []passed, l *lives, at time.Time) []pleg.Event {
	if same(old, cur) && len(over) == 0 {
		return nil
	}
	d := diff{pod: cmp.Or(cur, old), over: over, lives: l, at: at}
	before, after := kindsOf(old), kindsOf(cur) // a pod may have thousands of sandboxes
	each(old, func(c *pleg.Container, sandbox bool) { d.tell(c, sandbox, before[c.ID], after[c.ID]) })
	for _, p := range over {
		if before[p.container.ID] == absent && after[p.container.ID] == absent {
			d.pass(p)
		}
	}
	each(cur, func(c *pleg.Container, sandbox bool) {
		if before[c.ID] == absent {
			d.tell(c, sandbox, absent, after[c.ID])
		}
	})
	return d.out
}

// diff makes the events of one pod.
type diff struct {
	pod   *pleg.Pod // for its name
	over  []passed
	lives *lives
	at    time.Time
	out   []pleg.Event
}

// tell reports a container that goes from one kind to another.
func (d *diff) tell(c *pleg.Container, sandbox bool, from, to kind) {
	if from == to {
		return
	}
	known := d.lives.told[one{d.pod.UID, c.ID}]
	if to != absent && to <= known { // the pod is only inspected
		d.add(stage.ContainerChanged, d.pod, c, sandbox)
		return
	}
	from = max(from, known)
	for _, t := range transition(from, to) {
		if t == pleg.ContainerDied && from < running {
			d.start(c, sandbox)
		}
		if from == absent && c.State == pleg.StateCreated {
			t = pleg.ContainerCreated
		}
		d.add(t, d.pod, c, sandbox)
	}
}

// start reports the start of a container that no list showed running. If no event announced it, a
// status may contain the time of the start, except for a sandbox.
func (d *diff) start(c *pleg.Container, sandbox bool) {
	t := stage.ContainerRan
	if i := slices.IndexFunc(d.over, func(p passed) bool { return p.container.ID == c.ID }); i >= 0 {
		t = d.over[i].start
	}
	if t != stage.ContainerRan || !sandbox && !d.lives.kubelet() {
		d.add(t, d.pod, c, sandbox)
	}
}

// pass reports a container whose life no two answers show: nothing was reported of it.
func (d *diff) pass(p passed) {
	if p.start != stage.ContainerRan || !d.lives.kubelet() {
		d.add(p.start, p.pod, p.container, p.sandbox)
	}
	d.add(pleg.ContainerDied, p.pod, p.container, p.sandbox)
	d.add(pleg.ContainerRemoved, p.pod, p.container, p.sandbox)
}

func (d *diff) add(t pleg.EventType, pod *pleg.Pod, c *pleg.Container, sandbox bool) {
	ev := podEvent(t, pod, d.at)
	ev.ContainerID, ev.ContainerName, ev.Attempt, ev.Sandbox = c.ID, c.Name, c.Attempt, sandbox
	d.out = append(d.out, ev)
}

func podEvent(t pleg.EventType, pod *pleg.Pod, at time.Time) pleg.Event {
	return pleg.Event{Type: t, PodUID: pod.UID, PodName: pod.Name, PodNamespace: pod.Namespace, ObservedAt: at}
}

// markFound marks the events that describe the pod's state in the first listing.
func markFound(told []pleg.Event, found *pleg.Pod) {
	kinds := kindsOf(found)
	for i := range told {
		step := changed
		switch told[i].Type {
		case pleg.ContainerStarted, stage.ContainerRan:
			step = running
		case pleg.ContainerDied:
			step = exited
		case pleg.ContainerRemoved:
			step = never
		}
		told[i].Replayed = kinds[told[i].ContainerID] >= step
	}
}
