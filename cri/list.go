package cri

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// lists is what the client keeps from one list to the next.
type lists struct {
	skipped *skipped
	joiner  *joiner
	seen    map[pleg.ContainerID]struct{}
}

func newLists(log *slog.Logger, m *metrics) *lists {
	s := newSkipped(log, m)
	return &lists{skipped: s, joiner: newJoiner(s), seen: make(map[pleg.ContainerID]struct{})}
}

// ListPods returns every pod with all its containers and sandboxes, dead ones
// too, each newest first; the pods are in no order. Both lists of the runtime
// are asked for at once. It blocks until both have answered, one has failed, or
// ctx or Options.ListTimeout has ended; a concurrent ListPods waits for this
// one. The error wraps the grpc status of the list that failed.
func (c *Client) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	var l *lists
	select {
	case l = <-c.lists:
	case <-ctx.Done():
		return nil, fmt.Errorf("list pods: %w", context.Cause(ctx))
	}
	defer func() { c.lists <- l }()

	callCtx, cancel := context.WithTimeout(ctx, c.opts.ListTimeout)
	defer cancel()
	calls, callCtx := errgroup.WithContext(callCtx)
	var sandboxes *runtimeapi.ListPodSandboxResponse
	var containers *runtimeapi.ListContainersResponse
	calls.Go(func() (err error) {
		sandboxes, err = c.runtime.ListPodSandbox(callCtx, &runtimeapi.ListPodSandboxRequest{})
		return c.wrapList("list pod sandboxes", err)
	})
	calls.Go(func() (err error) {
		containers, err = c.runtime.ListContainers(callCtx, &runtimeapi.ListContainersRequest{})
		return c.wrapList("list containers", err)
	})
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	return l.joiner.join(ctx,
		wellFormed(ctx, l, sandboxes.GetItems(), sandboxItem),
		wellFormed(ctx, l, containers.GetContainers(), containerItem)), nil
}

// wellFormed converts the elements of one list but for those to be skipped.
func wellFormed[E any](ctx context.Context, l *lists, elements []E, convert func(E) *item) []*item {
	clear(l.seen)
	items := make([]*item, 0, len(elements))
	for _, e := range elements {
		it := convert(e)
		if _, twice := l.seen[it.ID]; twice && it.skip == keep {
			it.skip = duplicateID
		}
		if it.skip != keep {
			l.skipped.add(ctx, it, it.skip)
			continue
		}
		l.seen[it.ID] = struct{}{}
		items = append(items, it)
	}
	return items
}
