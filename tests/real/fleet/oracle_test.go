package fleet_test

import (
	"errors"
	"fmt"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// oracle reads the events of one watch of all events, network events included, as a stream of each
// node. One goroutine at a time may use it.
type oracle struct {
	// Published is Stream.Published, by node.
	Published func(node, epoch string) []pleg.Event
	// AtLeast is Stream.AtLeast, by node. A node without a stream counts as one without containers.
	AtLeast map[string]promises.Truth

	Synced bool // the last replay of all nodes is complete
	Gaps   int

	streams map[string]*promises.Stream
	replay  bool            // the replay of all nodes is not complete
	alone   map[string]bool // nodes whose own replay is not complete
}

// newOracle returns an oracle without events. replay is true if its watch begins with a replay.
func newOracle(replay bool) *oracle {
	return &oracle{streams: make(map[string]*promises.Stream), replay: replay, alone: make(map[string]bool)}
}

func (c *oracle) stream(node string) *promises.Stream {
	s := c.streams[node]
	if s == nil {
		s = &promises.Stream{Replay: c.replay, Network: true, Merged: true}
		if c.Published != nil {
			s.Published = func(epoch string) []pleg.Event { return c.Published(node, epoch) }
		}
		c.streams[node] = s
	}
	s.AtLeast = c.AtLeast[node]
	return s
}

// Add adds the next event of the watch. A Gap and a Synced of all nodes belong to each
// stream, except that the replay of one node ends with a Synced of its own.
func (c *oracle) Add(ev fleet.Event) {
	if ev.Type == pleg.Gap {
		c.Gaps++
	}
	switch {
	case ev.Type == pleg.Bookmark:
	case ev.Node != "" && ev.PodUID == "":
		if ev.Type == pleg.Gap || c.alone[ev.Node] || !c.replay {
			c.stream(ev.Node).Add(ev.Event)
		}
		c.alone[ev.Node] = ev.Type == pleg.Gap
	case ev.Node != "":
		c.stream(ev.Node).Add(ev.Event)
	case ev.Type == pleg.Gap:
		c.replay, c.Synced, c.alone = true, false, make(map[string]bool)
		for _, s := range c.streams {
			s.Add(ev.Event)
		}
	case ev.Type == pleg.Synced:
		for node := range c.AtLeast {
			c.stream(node)
		}
		for node, s := range c.streams {
			if !c.alone[node] && s.Replaying() {
				s.Add(ev.Event)
			}
		}
		c.replay, c.Synced = false, true
	}
}

// Compare returns an error if the state of the nodes is not truth, or if a promise is
// broken.
func (c *oracle) Compare(truth map[string]promises.Truth) error {
	var all []error
	for name, want := range truth {
		all = append(all, c.CompareNode(name, want))
	}
	for name, s := range c.streams {
		if _, ok := truth[name]; !ok && len(s.State.Diff(promises.Truth{})) > 0 {
			all = append(all, fmt.Errorf("there is no node %s", name))
		}
	}
	return errors.Join(all...)
}

// CompareNode returns an error if the state of one node is not want, or if a promise about
// it is broken.
func (c *oracle) CompareNode(name string, want promises.Truth) error {
	if err := c.Has(name, want); err != nil {
		return err
	}
	s := c.stream(name)
	s.Truth = want
	defer func() { s.Truth = nil }()
	if err := s.Check(); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return nil
}

// Has returns an error if the state of one node is not want, even during a replay.
func (c *oracle) Has(name string, want promises.Truth) error {
	if diff := c.stream(name).State.Diff(want); len(diff) > 0 {
		return fmt.Errorf("node %s: %d differences, such as %s", name, len(diff), diff[0])
	}
	return nil
}

// Forget drops the events of a node whose state is want.
func (c *oracle) Forget(name string, want promises.Truth) {
	s := c.stream(name)
	s.Truth = want
	s.Forget()
	s.Truth = nil
}
