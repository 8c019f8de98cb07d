// Package oracle checks what a consumer of a fleet got against what the agents published.
// Each promise is one error.
package oracle

import (
	"errors"
	"fmt"
	"maps"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The promises that can be broken.
var (
	// ErrNotUnion: the consumer's map of containers is not the union of the agents'.
	ErrNotUnion = errors.New("the consumer's state is not the union of the agents' states")
	// ErrTwice: an event came twice, or came after a replay that included it.
	ErrTwice = errors.New("an event came twice")
	// ErrHole: events are missing without a Gap, and no replay included them.
	ErrHole = errors.New("events are missing without a Gap")
	// ErrOrder: the events of a container are not in order.
	ErrOrder = errors.New("the events of a container are out of order")
	// ErrContent: an event is not what the agent published.
	ErrContent = errors.New("an event differs from what the agent published")
	// ErrSyncedEarly: a Synced came before the state was complete.
	ErrSyncedEarly = errors.New("Synced came before the state was complete")
	// ErrMarks: marks are not in their order: Gap, replay, Synced.
	ErrMarks = errors.New("a mark is out of place")
)

// State is whether the containers of one node run.
type State map[pleg.ContainerID]bool

// Consumer checks the events of one watch of all events, network events included. One
// goroutine at a time may use it.
type Consumer struct {
	// Published returns what an agent has published in an epoch; the number of the event
	// at i is i+1. If nil, contents are not compared.
	Published func(node, epoch string) []pleg.Event
	// AtLeast has containers that existed before the watch began and still do. Synced
	// must not come before the consumer has them.
	AtLeast map[string]State

	nodes  map[string]*node
	whole  bool // a replay of all nodes is not complete
	Synced bool // the last replay of all nodes is complete
	Gaps   int
	Events int
}

type node struct {
	epoch     string
	seq       uint64 // the last event that is not a replayed one; 0 if unknown
	replaying bool
	// included is the number of the last event of each container in the replay.
	included map[pleg.PodUID]map[pleg.ContainerID]uint64
	state    State
}

// New returns a consumer that has nothing. replay is true if its watch begins with one.
func New(replay bool) *Consumer { return &Consumer{nodes: make(map[string]*node), whole: replay} }

func (c *Consumer) node(name string) *node {
	n := c.nodes[name]
	if n == nil {
		n = &node{included: make(map[pleg.PodUID]map[pleg.ContainerID]uint64), state: make(State)}
		c.nodes[name] = n
	}
	return n
}

// Add checks the next event of the watch.
func (c *Consumer) Add(ev fleet.Event) error {
	err := c.add(ev)
	if err != nil {
		return fmt.Errorf("%w: node %s, %s %s/%d of %s %s", err, ev.Node, ev.Type, ev.Epoch, ev.Seq, ev.PodUID, ev.ContainerID)
	}
	return nil
}

func (c *Consumer) add(ev fleet.Event) error {
	switch ev.Type {
	case pleg.Bookmark:
		return nil
	case pleg.Gap:
		c.Gaps++
		c.gap(ev.Node)
		return nil
	case pleg.Synced:
		return c.synced(ev.Node)
	}
	n := c.node(ev.Node)
	if ev.Replayed {
		return c.replayed(n, ev)
	}
	c.Events++
	if err := c.sequence(n, ev); err != nil {
		return err
	}
	return n.apply(ev)
}

func (c *Consumer) gap(name string) {
	if name == "" {
		c.nodes, c.whole, c.Synced = make(map[string]*node), true, false
		return
	}
	delete(c.nodes, name)
	c.node(name).replaying = true
}

func (c *Consumer) synced(name string) error {
	if name == "" {
		c.whole, c.Synced = false, true
		for other := range c.AtLeast {
			if err := c.complete(other); err != nil {
				return err
			}
		}
		return nil
	}
	if n := c.node(name); !n.replaying && !c.whole {
		return fmt.Errorf("%w: Synced without a Gap", ErrMarks)
	}
	c.node(name).replaying = false
	return c.complete(name)
}

func (c *Consumer) complete(name string) error {
	for id := range c.AtLeast[name] {
		if _, ok := c.node(name).state[id]; !ok {
			return fmt.Errorf("%w: %s is missing on %s", ErrSyncedEarly, id, name)
		}
	}
	return nil
}

func (c *Consumer) replayed(n *node, ev fleet.Event) error {
	if !n.replaying && !c.whole {
		return fmt.Errorf("%w: a replayed event outside a replay", ErrMarks)
	}
	if _, known := n.state[ev.ContainerID]; known {
		return fmt.Errorf("%w: it was replayed before", ErrTwice)
	}
	n.epoch = ev.Epoch
	if n.included[ev.PodUID] == nil {
		n.included[ev.PodUID] = make(map[pleg.ContainerID]uint64)
	}
	n.included[ev.PodUID][ev.ContainerID] = ev.Seq
	n.state[ev.ContainerID] = ev.Type == pleg.ContainerStarted
	return nil
}

// sequence checks that ev is the next event of its node, except for what a replay has
// included.
func (c *Consumer) sequence(n *node, ev fleet.Event) error {
	if n.epoch == "" {
		n.epoch = ev.Epoch
	}
	var published []pleg.Event
	if c.Published != nil {
		published = c.Published(ev.Node, ev.Epoch)
	}
	switch {
	case ev.Epoch != n.epoch:
		return fmt.Errorf("%w: the epoch was %s", ErrHole, n.epoch)
	case ev.Seq <= n.seq || ev.Seq <= n.included[ev.PodUID][ev.ContainerID]:
		return ErrTwice
	case n.seq > 0 && published != nil:
		for seq := n.seq + 1; seq < ev.Seq; seq++ {
			if !n.includes(published, seq) {
				lost := published[seq-1]
				return fmt.Errorf("%w: %d follows %d; %s of %s %s is missing, the replay of the pod was %v", ErrHole, ev.Seq, n.seq, lost.Type, lost.PodUID, lost.ContainerID, n.included[lost.PodUID])
			}
		}
	case n.seq > 0 && len(n.included) == 0 && ev.Seq != n.seq+1:
		return fmt.Errorf("%w: %d follows %d", ErrHole, ev.Seq, n.seq)
	}
	n.seq = ev.Seq
	if published != nil {
		want := published[ev.Seq-1]
		if ev.Type != want.Type || ev.PodUID != want.PodUID || ev.ContainerID != want.ContainerID ||
			ev.PodNamespace != want.PodNamespace || !ev.ObservedAt.Equal(want.ObservedAt) {
			return fmt.Errorf("%w: want %+v", ErrContent, want)
		}
	}
	return nil
}

// includes reports whether the replayed state of a pod includes the event seq: whether it
// is the pod's state after that event or after a later one.
func (n *node) includes(published []pleg.Event, seq uint64) bool {
	uid := published[seq-1].PodUID
	state := make(map[pleg.ContainerID]uint64)
	for _, ev := range published {
		if ev.PodUID == uid {
			switch ev.Type {
			case pleg.ContainerStarted, pleg.ContainerDied:
				state[ev.ContainerID] = ev.Seq
			case pleg.ContainerRemoved:
				delete(state, ev.ContainerID)
			}
		}
		if ev.Seq >= seq && maps.Equal(state, n.included[uid]) {
			return true
		}
	}
	return false
}

func (n *node) apply(ev fleet.Event) error {
	running, known := n.state[ev.ContainerID]
	switch ev.Type {
	case pleg.ContainerStarted:
		if known {
			return fmt.Errorf("%w: it started before", ErrOrder)
		}
		n.state[ev.ContainerID] = true
	case pleg.ContainerDied:
		if known && !running {
			return fmt.Errorf("%w: it died before", ErrOrder)
		}
		n.state[ev.ContainerID] = false
	case pleg.ContainerRemoved:
		if running {
			return fmt.Errorf("%w: it is removed while it runs", ErrOrder)
		}
		delete(n.state, ev.ContainerID)
	}
	return nil
}

// State returns what the consumer knows of a node.
func (c *Consumer) State(node string) State { return c.node(node).state }

// Compare returns an error if the state of the nodes is not truth.
func (c *Consumer) Compare(truth map[string]State) error {
	var all []error
	for name, want := range truth {
		all = append(all, c.CompareNode(name, want))
	}
	for name, n := range c.nodes {
		if _, ok := truth[name]; !ok && len(n.state) > 0 {
			all = append(all, fmt.Errorf("%w: there is no node %s", ErrNotUnion, name))
		}
	}
	return errors.Join(all...)
}

// CompareNode returns an error if the state of one node is not want.
func (c *Consumer) CompareNode(name string, want State) error {
	got := c.node(name).state
	if maps.Equal(got, want) {
		return nil
	}
	return fmt.Errorf("%w: node %s has %d containers, want %d%s", ErrNotUnion, name, len(got), len(want), difference(got, want))
}

func difference(got, want State) string {
	for id, running := range want {
		if g, ok := got[id]; !ok || g != running {
			return fmt.Sprintf(", such as %s: running %t (known %t), want %t", id, g, ok, running)
		}
	}
	for id := range got {
		if _, ok := want[id]; !ok {
			return fmt.Sprintf(", such as %s, which is gone", id)
		}
	}
	return ""
}
