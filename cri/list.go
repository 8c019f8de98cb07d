package cri

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// lists is what the client keeps from one list to the next.
type lists struct {
	sandboxes  *table
	containers *table
	joiner     *joiner
	skipped    *skipped
	last       []*pleg.Pod
}

func newLists(log *slog.Logger, m *metrics) *lists {
	return &lists{
		sandboxes:  newSandboxTable(),
		containers: newContainerTable(),
		joiner:     newJoiner(),
		skipped:    newSkipped(log, m),
	}
}

// ListPods returns every pod with all its containers and sandboxes, dead ones
// too, each newest first; the pods are in no order. A pod, a container or a
// sandbox that did not change since the last list is the same pointer. Both lists of the runtime
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
	calls.Go(func() error {
		err := c.list(callCtx, runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, &runtimeapi.ListPodSandboxRequest{}, l.sandboxes)
		return c.wrapList("list pod sandboxes", err)
	})
	calls.Go(func() error {
		err := c.list(callCtx, runtimeapi.RuntimeService_ListContainers_FullMethodName, &runtimeapi.ListContainersRequest{}, l.containers)
		return c.wrapList("list containers", err)
	})
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	return l.pods(ctx), nil
}

func (c *Client) list(ctx context.Context, method string, request any, answer *table) error {
	return c.conn.Invoke(ctx, method, request, answer, grpc.StaticMethod(), grpc.ForceCodecV2(c.codec))
}

// pods joins the items of both tables, or returns the last pods once more if
// neither changed.
func (l *lists) pods(ctx context.Context) []*pleg.Pod {
	if l.sandboxes.changed || l.containers.changed {
		l.last = l.joiner.join(l.sandboxes.items, l.containers.items)
		l.sandboxes.changed, l.containers.changed = false, false
	}
	for _, s := range slices.Concat(l.sandboxes.skipped, l.containers.skipped) {
		l.skipped.add(ctx, s.item, s.reason)
	}
	for _, c := range l.joiner.homeless {
		l.skipped.add(ctx, c, noPod)
	}
	return slices.Clone(l.last)
}
