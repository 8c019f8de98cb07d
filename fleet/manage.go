package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Create creates the stream of a cluster and the bucket, for agents that may not. It is an error if the
// stream exists with other limits: an agent that was faster creates one.
func Create(ctx context.Context, js jetstream.JetStream, cluster string, limits Limits) error {
	err := errors.Join(checkName("cluster", cluster), limits.complete())
	if err == nil {
		err = create(ctx, js, cluster, limits)
	}
	if err != nil {
		return fmt.Errorf("create fleet: %w", err)
	}
	return nil
}

func create(ctx context.Context, js jetstream.JetStream, cluster string, limits Limits) error {
	stream, err := openStream(ctx, js, cluster, &limits)
	if err != nil {
		return err
	}
	config := stream.stream.CachedInfo().Config
	if has := (Limits{config.MaxAge, max(0, config.MaxBytes), config.Replicas}); has != limits {
		return fmt.Errorf("stream %s exists with %+v, want %+v: the nats command changes limits", config.Name, has, limits)
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
	known, err := s.nodes(ctx, nodes)
	if err != nil {
		return err
	}
	if len(nodes) == 0 && len(known) == 0 {
		return fmt.Errorf("no node of cluster %q: %w", s.cluster, ErrUnknownNode)
	}
	for _, node := range nodes {
		if known[node] == nil {
			return fmt.Errorf("node %q of cluster %q: %w", node, s.cluster, ErrUnknownNode)
		}
	}
	return nil
}

// Forget removes the states and events of a node that is gone. The error is an [ErrUnknownNode] if there
// is no such node and an [ErrPublishing] if an agent still publishes as it.
func (s *States) Forget(ctx context.Context, node string) error {
	if err := checkName("node", node); err != nil {
		return err
	}
	known, err := s.nodes(ctx, []string{node})
	if err != nil {
		return fmt.Errorf("forget node %s: %w", node, err)
	}
	switch n := known[node]; {
	case n == nil:
		return fmt.Errorf("node %q of cluster %q: %w", node, s.cluster, ErrUnknownNode)
	case n.Agent != "":
		return fmt.Errorf("forget node %s: %w: %s", node, ErrPublishing, n.Agent)
	}
	if err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(subjectsOf(s.cluster, []string{node})[0])); err != nil {
		return fmt.Errorf("forget node %s: %w", node, explain(s.js.Conn(), err))
	}
	return nil
}
