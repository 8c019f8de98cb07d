package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Create creates the streams and the buckets, for agents that may not. It is an error if they
// exist with other limits, or another number of parts.
func Create(ctx context.Context, js jetstream.JetStream, limits Limits) error {
	if err := limits.complete(); err != nil {
		return fmt.Errorf("create fleet: %w", err)
	}
	parts, err := openAll(ctx, js, &limits)
	if err != nil {
		return fmt.Errorf("create fleet: %w", err)
	}
	for _, part := range parts {
		config := part.stream.CachedInfo().Config
		if has := (Limits{config.MaxAge, max(0, config.MaxBytes), config.Replicas, len(parts)}); has != limits {
			return fmt.Errorf("create fleet: stream %s exists with %+v, want %+v: the nats command changes limits, nothing the parts", config.Name, has, limits)
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
// some node of the cluster has.
func (s *States) Check(ctx context.Context, nodes []string) error {
	known, err := s.Nodes(ctx)
	if err != nil {
		return err
	}
	if len(known) == 0 {
		return fmt.Errorf("no node of cluster %q: %w", s.cluster, ErrUnknownNode)
	}
	for _, node := range nodes {
		if !slices.ContainsFunc(known, func(n Node) bool { return n.Name == node }) {
			return fmt.Errorf("node %q of cluster %q: %w", node, s.cluster, ErrUnknownNode)
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
	part, key := s.of(node), nodeKey(s.cluster, node)
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
