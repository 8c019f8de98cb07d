package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Create creates the streams and the buckets, for agents that may not. It is an error if they
// exist with other limits, or another number of parts: an agent that was faster creates one.
func Create(ctx context.Context, js jetstream.JetStream, limits Limits) error {
	err := limits.complete()
	if err == nil {
		err = create(ctx, js, limits)
	}
	if errors.Is(err, errOtherParts) {
		err = fmt.Errorf("%w; stop the agents, remove all these streams and buckets, and create them before an agent does", err)
	}
	if err != nil {
		return fmt.Errorf("create fleet: %w", err)
	}
	return nil
}

func create(ctx context.Context, js jetstream.JetStream, limits Limits) error {
	parts, errs, err := openAll(ctx, js, &limits)
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	for _, part := range parts {
		config := part.stream.CachedInfo().Config
		has := Limits{config.MaxAge, max(0, config.MaxBytes), config.Replicas, len(parts)}
		switch {
		case has.Parts != limits.Parts:
			return fmt.Errorf("stream %s exists with %+v, want %+v: %w", config.Name, has, limits, errOtherParts)
		case has != limits:
			return fmt.Errorf("stream %s exists with %+v, want %+v: the nats command changes limits", config.Name, has, limits)
		}
	}
	return nil
}

var (
	// ErrUnknownNode means that a node, or all nodes of a cluster, have not published, or were
	// forgotten.
	ErrUnknownNode = errors.New("it has not published")
	// ErrPublishing means that an agent publishes as the node.
	ErrPublishing = errors.New("an agent publishes as this node")
)

// Check returns an [ErrUnknownNode] unless all these nodes have published; without nodes, unless
// some node of the cluster has. A node whose part is away may have.
func (s *States) Check(ctx context.Context, nodes []string) error {
	known, err := s.Nodes(ctx)
	if len(known) == 0 {
		return cmp.Or(err, fmt.Errorf("no node of cluster %q: %w", s.cluster, ErrUnknownNode))
	}
	for _, node := range nodes {
		_, away := s.of(node)
		if away == nil && !slices.ContainsFunc(known, func(n Node) bool { return n.Name == node }) {
			return errors.Join(fmt.Errorf("node %q of cluster %q: %w", node, s.cluster, ErrUnknownNode), err)
		}
	}
	return nil
}

// Forget removes the states of a node that is gone. The error is an [ErrUnknownNode] if there is
// no such node and an [ErrPublishing] if an agent still publishes as it. Its events stay in the
// stream until they are too old.
func (s *States) Forget(ctx context.Context, node string) error {
	if err := checkName("node", node); err != nil {
		return err
	}
	part, err := s.of(node)
	if err != nil {
		return fmt.Errorf("forget node %s: %w", node, err)
	}
	key := nodeKey(s.cluster, node)
	known, err := part.nodes(ctx, []string{key})
	if err != nil {
		return fmt.Errorf("forget node %s: %w", node, err)
	}
	switch n := known[node]; {
	case n == nil:
		return fmt.Errorf("node %q of cluster %q: %w", node, s.cluster, ErrUnknownNode)
	case n.Agent != "":
		return fmt.Errorf("forget node %s: %w: %s", node, ErrPublishing, n.Agent)
	}
	for _, subject := range subjectsOf(part.nameOf(StateBucket), []string{key + ".>", key}) {
		if err := part.states.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return fmt.Errorf("forget node %s: %w", node, explain(s.js.Conn(), err))
		}
	}
	return nil
}
