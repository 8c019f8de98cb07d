// Package simnode is the node of a test: the real dispatcher, with pods drawn at random in
// the place of a container runtime.
package simnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
)

// Options configure a [Node].
type Options struct {
	Name string
	// Pods is the number of pods around which the node stays.
	Pods int
	// History is the number of events that the dispatcher keeps.
	History int
	Seed    uint64
	// Offset is added to the clock of the node.
	Offset time.Duration
	// Discard drops the record of published events, which only an oracle needs.
	Discard bool
}

// Node is one life of a node's agent, from its start to its end. It is a fleet.Source. Its
// methods are safe for concurrent use.
type Node struct {
	o          Options
	dispatcher *dispatcher.Dispatcher
	outcomes   chan stage.Outcome
	stopped    chan struct{}

	mu        sync.Mutex
	random    *rand.Rand
	pods      map[pleg.PodUID]*pod
	order     []pleg.PodUID
	made      int
	published []pleg.Event
	count     int // of events
	closed    bool
}

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

// Namespaces are those of the pods.
var Namespaces = []string{"shop", "kube-system", "jobs"}

// New returns a node that runs, without pods. They come with [Node.Step].
func New(o Options) (*Node, error) {
	d, err := dispatcher.New(dispatcher.Options{History: o.History, SlowAfter: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	n := &Node{
		o: o, dispatcher: d, outcomes: make(chan stage.Outcome), stopped: make(chan struct{}),
		random: rand.New(rand.NewPCG(o.Seed, 1)), pods: make(map[pleg.PodUID]*pod),
	}
	go func() {
		defer close(n.stopped)
		_ = d.Run(n.outcomes) // it ends with the channel
	}()
	// Without a first list the dispatcher's Synced would not come.
	n.outcomes <- stage.Outcome{Current: time.Now()}
	return n, nil
}

// Close ends the node, as the end of its process would.
func (n *Node) Close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.outcomes)
	}
	n.mu.Unlock()
	<-n.stopped
}

// Restart ends the node and returns its next life: the same pods, another epoch.
func (n *Node) Restart() (*Node, error) {
	n.Close()
	next, err := New(n.o)
	if err != nil {
		return nil, err
	}
	next.made, next.random = n.made, n.random
	for _, uid := range n.order {
		p := n.pods[uid]
		next.pods[uid] = p
		next.order = append(next.order, uid)
		var events []pleg.Event
		for _, c := range p.containers {
			events = append(events, next.event(uid, c))
		}
		next.publish(uid, events...)
	}
	return next, nil
}

// Epoch is that of the node's dispatcher.
func (n *Node) Epoch() string { return n.dispatcher.Epoch() }

// Published returns all events so far. The number of the event at i is i+1. It is no copy: an
// oracle asks for each event, and what was published does not change.
func (n *Node) Published() []pleg.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clip(n.published)
}

// SetClock sets the offset of the node's clock.
func (n *Node) SetClock(offset time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.o.Offset = offset
}

// Step makes one change: a new pod, a container that dies or is started again, or the
// removal of a pod. It publishes up to about ten events and returns their number.
func (n *Node) Step() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.count
	if !n.closed {
		n.step()
	}
	return n.count - before
}

func (n *Node) step() {
	if len(n.order) == 0 || len(n.order) < n.o.Pods && n.random.IntN(3) > 0 {
		n.create()
		return
	}
	uid := n.order[n.random.IntN(len(n.order))]
	p := n.pods[uid]
	switch r := n.random.IntN(10); {
	case r < 3 || len(n.order) > n.o.Pods:
		n.remove(uid)
	case r < 9:
		n.restart(uid, p.containers[1+n.random.IntN(len(p.containers)-1)])
	default:
		n.publish(uid, n.base(uid, pleg.PodSync))
	}
}

func (n *Node) create() {
	n.made++
	uid := pleg.PodUID(fmt.Sprintf("%s-%06d", n.o.Name, n.made))
	p := &pod{name: fmt.Sprintf("pod-%d", n.made), namespace: Namespaces[n.made%len(Namespaces)]}
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

func (n *Node) restart(uid pleg.PodUID, c *container) {
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

func (n *Node) remove(uid pleg.PodUID) {
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
func (n *Node) event(uid pleg.PodUID, c *container) pleg.Event {
	ev := n.base(uid, pleg.ContainerStarted)
	ev.ContainerID, ev.ContainerName, ev.Attempt, ev.Sandbox = c.id, c.name, c.attempt, c.sandbox
	if !c.running {
		code := int32(c.attempt)
		ev.Type, ev.ExitCode = pleg.ContainerDied, &code
	}
	return ev
}

func (n *Node) base(uid pleg.PodUID, t pleg.EventType) pleg.Event {
	p := n.pods[uid]
	return pleg.Event{Type: t, PodUID: uid, PodName: p.name, PodNamespace: p.namespace, ObservedAt: time.Now().Add(n.o.Offset)}
}

func (n *Node) publish(uid pleg.PodUID, events ...pleg.Event) {
	var listed *pleg.Pod
	if p := n.pods[uid]; p != nil {
		listed = &pleg.Pod{UID: uid, Name: p.name, Namespace: p.namespace, Labels: labels(p)}
		for _, c := range p.containers {
			listed.Containers = append(listed.Containers, &pleg.Container{ID: c.id, Name: c.name})
		}
	}
	if !n.o.Discard {
		for _, ev := range events {
			ev.Epoch, ev.Seq = n.dispatcher.Epoch(), uint64(len(n.published)+1)
			n.published = append(n.published, ev)
		}
	}
	n.count += len(events)
	n.outcomes <- stage.Outcome{UID: uid, Pod: listed, Events: events}
}

func labels(p *pod) map[string]string { return map[string]string{"app": p.namespace + "-app"} }

// State is whether a container or sandbox runs.
type State map[pleg.ContainerID]bool

// Truth returns the state of every container and sandbox.
func (n *Node) Truth() State {
	n.mu.Lock()
	defer n.mu.Unlock()
	truth := make(State)
	for _, p := range n.pods {
		for _, c := range p.containers {
			truth[c.id] = c.running
		}
	}
	return truth
}

// Follow implements fleet.Source.
func (n *Node) Follow(ctx context.Context, after *pipeline.Position, events chan<- pleg.Event) error {
	o := dispatcher.SubscribeOptions{Name: "fleet", Replay: after == nil, Bookmarks: true, NetworkEvents: true}
	if after != nil {
		o.After = *after
	}
	sub, err := n.dispatcher.Subscribe(o)
	if errors.Is(err, dispatcher.ErrStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	for ev := range sub.All(ctx) {
		select {
		case events <- ev:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// Status implements fleet.Source.
func (n *Node) Status(_ context.Context, uid pleg.PodUID) (*pleg.PodStatus, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	status := &pleg.PodStatus{UID: uid, ObservedAt: time.Now().Add(n.o.Offset)}
	p := n.pods[uid]
	if p == nil {
		return status, nil
	}
	status.Name, status.Namespace, status.IPs = p.name, p.namespace, []string{"10.0.0.1"}
	for _, c := range p.containers {
		if c.sandbox {
			status.Sandboxes = append(status.Sandboxes, &pleg.SandboxStatus{ID: c.id, Attempt: c.attempt, Ready: c.running, Labels: labels(p)})
			continue
		}
		state := pleg.StateExited
		if c.running {
			state = pleg.StateRunning
		}
		status.Containers = append(status.Containers, &pleg.ContainerStatus{ID: c.id, Name: c.name, Attempt: c.attempt, State: state})
	}
	return status, nil
}
