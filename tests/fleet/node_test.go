// Package simnode is the node of a test: the real dispatcher, with pods drawn at random in
// the place of a container runtime.
package simnode

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
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
	// Spoil changes what a publisher gets: an event, beside an empty status, or a status, beside an
	// empty event.
	Spoil func(*pleg.Event, *pleg.PodStatus)
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

// Namespaces are those of the pods.
var Namespaces = []string{"shop", "kube-system", "jobs"}

// New returns a node that runs, without pods. They come with [Node.Step].
func New(o Options) (*Node, error) {
	d, err := dispatcher.New(dispatcher.Options{History: o.History, SlowAfter: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if o.Spoil == nil {
		o.Spoil = func(*pleg.Event, *pleg.PodStatus) {}
	}
	n := &Node{
		o: o, dispatcher: d, outcomes: make(chan stage.Outcome), stopped: make(chan struct{}),
		random: rand.New(rand.NewPCG(o.Seed, 1)), pods: make(map[pleg.PodUID]*pod),
	}
	marks := make(chan stage.Mark)
	go func() {
		defer close(n.stopped)
		_ = d.Run(n.outcomes, marks) // it ends with the channel
	}()
	// Without a first list the dispatcher's Synced would not come.
	marks <- stage.Mark{Current: time.Now()}
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

// Truth returns the state of every container and sandbox.
func (n *Node) Truth() promises.Truth {
	n.mu.Lock()
	defer n.mu.Unlock()
	truth := make(promises.Truth)
	for uid, p := range n.pods {
		pod := promises.Pod{Namespace: p.namespace, Name: p.name, Containers: make(map[pleg.ContainerID]promises.Container)}
		for _, c := range p.containers {
			pod.Containers[c.id] = promises.Container{Sandbox: c.sandbox, State: states[c.running], ExitCode: int32(c.attempt)}
		}
		truth[uid] = pod
	}
	return truth
}

var states = map[bool]pleg.State{true: pleg.StateRunning, false: pleg.StateExited}

// Follow implements fleet.Source.
func (n *Node) Follow(ctx context.Context, after *pleg.Position, events chan<- pleg.Event) error {
	o := pleg.SubscribeOptions{Name: "fleet", Replay: after == nil, Bookmarks: true, Filter: pleg.Filter{Types: pleg.EventTypes(pleg.ClassNormal, pleg.ClassOnRequest)}}
	if after != nil {
		o.After = *after
	}
	sub, err := n.dispatcher.Subscribe(o)
	if errors.Is(err, pleg.ErrStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		select {
		case ev, ok := <-sub.Events():
			if !ok {
				return ctx.Err()
			}
			n.o.Spoil(&ev, new(pleg.PodStatus))
			select {
			case events <- ev:
			case <-ctx.Done():
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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
		status.Containers = append(status.Containers, &pleg.ContainerStatus{ID: c.id, Name: c.name, Attempt: c.attempt, State: states[c.running]})
	}
	n.o.Spoil(new(pleg.Event), status)
	return status, nil
}
