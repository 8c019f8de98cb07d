package fleet_test

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// simNode is one life of a node, from its start to its end: the real dispatcher, with pods drawn at
// random in the place of a container runtime. Of a node.Pipeline it implements only Watch. Its methods are safe for
// concurrent use.
type simNode struct {
	node.Pipeline

	name       string
	o          agentOptions
	dispatcher *dispatcher.Dispatcher
	outcomes   chan stage.Outcome
	stopped    chan struct{}

	mu        sync.Mutex
	random    *rand.Rand
	pods      map[pleg.PodUID]*pod
	statuses  map[pleg.PodUID]*pleg.PodStatus // since the last change of the pod
	order     []pleg.PodUID
	made      int
	published []pleg.Event
	closed    bool
}

// namespaces are the namespaces of the pods.
var namespaces = []string{"shop", "kube-system", "jobs"}

// newNode returns a node that an agent publishes, or none. It runs until the test ends, without pods:
// they come with Step.
func newNode(t *testing.T, name string, o agentOptions) *simNode {
	t.Helper()
	o.history, o.pods, o.seed = cmp.Or(o.history, 8192), cmp.Or(o.pods, 12), cmp.Or(o.seed, 7)
	n := &simNode{
		name: name, o: o, outcomes: make(chan stage.Outcome), stopped: make(chan struct{}),
		random: rand.New(rand.NewPCG(o.seed, 1)), pods: make(map[pleg.PodUID]*pod), statuses: make(map[pleg.PodUID]*pleg.PodStatus),
	}
	d, err := dispatcher.New(dispatcher.Options{History: o.history, SlowAfter: time.Hour, Status: n.status, Logger: slog.New(slog.DiscardHandler)})
	kit.Must(t, err)
	n.dispatcher = d
	t.Cleanup(n.Close)
	marks := make(chan stage.Mark)
	go func() {
		defer close(n.stopped)
		_ = d.Run(n.outcomes, marks) // Run ends with the channel
	}()
	// Without a first list the dispatcher's Synced would not come.
	marks <- stage.Mark{Current: time.Now()}
	return n
}

// Close ends the node, as the end of its process would.
func (n *simNode) Close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.outcomes)
	}
	n.mu.Unlock()
	<-n.stopped
}

// Restart ends the node and returns its next life: the same pods, another epoch.
func (n *simNode) Restart(t *testing.T) *simNode {
	t.Helper()
	n.Close()
	next := newNode(t, n.name, n.o)
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
	return next
}

// Epoch is the epoch of the node's dispatcher.
func (n *simNode) Epoch() string { return n.dispatcher.Epoch() }

// Published returns all events so far. The number of the event at i is i+1. It is no copy: an
// oracle asks for each event, and published events do not change.
func (n *simNode) Published() []pleg.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clip(n.published)
}

// SetClock sets the offset of the node's clock.
func (n *simNode) SetClock(offset time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.o.offset = offset
}

// Step makes one change: a new pod, a container that dies or is started again, or the
// removal of a pod. It publishes up to about ten events.
func (n *simNode) Step() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.step()
	}
}

// RemoveOne removes a pod.
func (n *simNode) RemoveOne() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remove(n.order[0])
}

// Truth returns the state of every container and sandbox.
func (n *simNode) Truth() promises.Truth {
	n.mu.Lock()
	defer n.mu.Unlock()
	var entries []cache.Entry
	for _, uid := range n.order {
		entries = append(entries, cache.Entry{UID: uid, Status: n.statusOf(uid)})
	}
	return promises.CachedTruth(entries)
}

func (n *simNode) spoil(ev *pleg.Event, status *pleg.PodStatus) {
	if n.o.spoil != nil {
		n.o.spoil(ev, status)
	}
}

// Watch implements node.Pipeline.
func (n *simNode) Watch(ctx context.Context, o pleg.SubscribeOptions) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		sub, err := n.dispatcher.Subscribe(o)
		if err != nil {
			yield(pleg.Event{}, err)
			return
		}
		defer sub.Close()
		for ev, err := range sub.All(ctx) {
			n.spoil(&ev, new(pleg.PodStatus))
			if !yield(ev, err) {
				return
			}
		}
	}
}

func (n *simNode) status(uid pleg.PodUID) *pleg.PodStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.statusOf(uid)
}

// statusOf returns the result of an inspection.
func (n *simNode) statusOf(uid pleg.PodUID) *pleg.PodStatus {
	status := &pleg.PodStatus{UID: uid, ObservedAt: time.Now().Add(n.o.offset)}
	p := n.pods[uid]
	if p == nil {
		return status
	}
	if known := n.statuses[uid]; known != nil {
		return known
	}
	n.statuses[uid] = status
	status.Name, status.Namespace, status.IPs = p.name, p.namespace, []string{"10.0.0.1"}
	for _, c := range p.containers {
		if c.sandbox {
			status.Sandboxes = append(status.Sandboxes, &pleg.SandboxStatus{ID: c.id, Attempt: c.attempt, Ready: c.running, Labels: labels(p)})
			continue
		}
		now := &pleg.ContainerStatus{ID: c.id, Name: c.name, Attempt: c.attempt, State: pleg.StateRunning}
		if !c.running {
			now.State, now.ExitCode = pleg.StateExited, int32(c.attempt)
		}
		status.Containers = append(status.Containers, now)
	}
	n.spoil(new(pleg.Event), status)
	return status
}
