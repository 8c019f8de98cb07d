package fleet_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

type pod struct {
	name, namespace string
	containers      []*container
}

type container struct {
	id      pleg.ContainerID
	name    string
	attempt uint32
	sandbox bool
	running bool
}

func (n *simNode) step() {
	if len(n.order) == 0 || len(n.order) < n.o.pods && n.random.IntN(3) > 0 {
		n.create()
		return
	}
	uid := n.order[n.random.IntN(len(n.order))]
	p := n.pods[uid]
	switch r := n.random.IntN(10); {
	case r < 3 || len(n.order) > n.o.pods:
		n.remove(uid)
	case r < 9:
		n.restart(uid, p.containers[1+n.random.IntN(len(p.containers)-1)])
	default:
		n.publish(uid, n.base(uid, pleg.PodSync))
	}
}

func (n *simNode) create() {
	n.made++
	uid := pleg.PodUID(fmt.Sprintf("%s-%06d", n.name, n.made))
	p := &pod{name: fmt.Sprintf("pod-%d", n.made), namespace: namespaces[n.made%len(namespaces)]}
	n.pods[uid] = p
	n.order = append(n.order, uid)
	var events []pleg.Event
	for i := range 2 + n.random.IntN(2) {
		c := &container{name: fmt.Sprintf("c%d", i), sandbox: i == 0, running: true}
		c.id = pleg.ContainerID(fmt.Sprintf("%s/%s/0", uid, c.name))
		p.containers = append(p.containers, c)
		events = append(events, n.event(uid, c))
	}
	n.publish(uid, events...)
}

func (n *simNode) restart(uid pleg.PodUID, c *container) {
	var events []pleg.Event
	if c.running {
		c.running = false
		events = append(events, n.event(uid, c))
	}
	if n.random.IntN(2) == 0 {
		removed := n.event(uid, c)
		removed.Type, removed.ExitCode = pleg.ContainerRemoved, nil
		c.attempt++
		c.id, c.running = pleg.ContainerID(fmt.Sprintf("%s/%s/%d", uid, c.name, c.attempt)), true
		events = append(events, removed, n.event(uid, c))
	}
	if len(events) > 0 {
		n.publish(uid, events...)
	}
}

func (n *simNode) remove(uid pleg.PodUID) {
	var events []pleg.Event
	for _, c := range n.pods[uid].containers {
		if c.running {
			c.running = false
			events = append(events, n.event(uid, c))
		}
		removed := n.event(uid, c)
		removed.Type, removed.ExitCode = pleg.ContainerRemoved, nil
		events = append(events, removed)
	}
	p := n.pods[uid]
	for i := range events {
		events[i].PodName, events[i].PodNamespace = p.name, p.namespace
	}
	delete(n.pods, uid)
	n.order = slices.DeleteFunc(n.order, func(other pleg.PodUID) bool { return other == uid })
	n.publish(uid, events...)
}

// event returns the event that leads to the present state of c.
func (n *simNode) event(uid pleg.PodUID, c *container) pleg.Event {
	ev := n.base(uid, pleg.ContainerStarted)
	ev.ContainerID, ev.ContainerName, ev.Attempt, ev.Sandbox = c.id, c.name, c.attempt, c.sandbox
	if !c.running {
		code := int32(c.attempt)
		ev.Type, ev.ExitCode = pleg.ContainerDied, &code
	}
	return ev
}

func (n *simNode) base(uid pleg.PodUID, t pleg.EventType) pleg.Event {
	p := n.pods[uid]
	return pleg.Event{Type: t, PodUID: uid, PodName: p.name, PodNamespace: p.namespace, ObservedAt: time.Now().Add(n.o.offset)}
}

func (n *simNode) publish(uid pleg.PodUID, events ...pleg.Event) {
	delete(n.statuses, uid)
	var listed *pleg.Pod
	if p := n.pods[uid]; p != nil {
		listed = &pleg.Pod{UID: uid, Name: p.name, Namespace: p.namespace, Labels: labels(p)}
		for _, c := range p.containers {
			listed.Containers = append(listed.Containers, &pleg.Container{ID: c.id, Name: c.name})
		}
	}
	if !n.o.discard {
		for _, ev := range events {
			ev.Epoch, ev.Seq = n.dispatcher.Epoch(), uint64(len(n.published)+1)
			n.published = append(n.published, ev)
		}
	}
	n.outcomes <- stage.Outcome{UID: uid, Pod: listed, Events: events}
}

func labels(p *pod) map[string]string { return map[string]string{"app": p.namespace + "-app"} }
