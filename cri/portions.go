package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// portionedFor is the time between two attempts to list all sandboxes at once after
// the list was too large. The annotations that make it large rarely shrink, and each
// attempt costs the runtime a whole list.
const portionedFor = 5 * time.Minute

// fallback returns an error while something works only by a fallback, and otherwise nil.
func (c *Client) fallback() error {
	if err := c.degraded.Load(); err != nil {
		return *err
	}
	if last := c.observed.last.Load(); last == nil || !last.unix || c.conn.GetState() != connectivity.Ready {
		return nil
	}
	if _, err := os.Stat(c.socket); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the socket %s %s", c.socket, gone)
	}
	return nil
}

// listPortions lists the sandboxes by state. If a state is still too large, it lists
// sandboxes singly; their ids are known from the last list, from the containers,
// and from single-pod lists since then. READY is first, so that a sandbox that stops
// meanwhile is in the second list, too; the first state counts.
func (c *Client) listPortions(ctx context.Context, l *lists) error {
	l.sandboxes.startList()
	l.sandboxes.portioned = true
	defer func() { l.sandboxes.portioned = false }()
	whole := true
	for _, state := range []runtimeapi.PodSandboxState{
		runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
	} {
		filter := &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: state}}
		switch err := c.invoke(ctx, "", l.sandboxes, &runtimeapi.ListPodSandboxRequest{Filter: filter}); {
		case status.Code(err) == codes.ResourceExhausted:
			whole = false
		case err != nil:
			return c.wrapList("list pod sandboxes of a state", err)
		}
	}
	if !whole {
		byState := len(l.sandboxes.items)
		if err := c.listByID(ctx, l); err != nil {
			return err
		}
		if len(l.sandboxes.items) == byState { // an empty list would be wrong
			return fmt.Errorf("%w; none is known by its id", *c.degraded.Load())
		}
	}
	l.sandboxes.finishList()
	return nil
}

func (c *Client) listByID(ctx context.Context, l *lists) error {
	for id := range l.sandboxIDs() {
		known := l.sandboxes.known[id]
		if known != nil && known.seenIn == l.sandboxes.current { // a state has shown it
			continue
		}
		filter := &runtimeapi.PodSandboxFilter{Id: id}
		switch err := c.invoke(ctx, "", l.sandboxes, &runtimeapi.ListPodSandboxRequest{Filter: filter}); {
		case status.Code(err) == codes.NotFound:
		case status.Code(err) == codes.ResourceExhausted && known != nil:
			l.sandboxes.include(known) // it exists; a sandbox that no list has shown yet must not count as gone
		case err != nil:
			return c.wrapList("list pod sandbox "+id, err)
		}
	}
	return nil
}

// sandboxIDs returns the ids of all known sandboxes.
func (l *lists) sandboxIDs() map[string]struct{} {
	ids := maps.Clone(l.seen)
	for id := range l.sandboxes.known {
		ids[id] = struct{}{}
	}
	for _, c := range l.containers.items {
		if c.SandboxID != "" {
			ids[string(c.SandboxID)] = struct{}{}
		}
	}
	return ids
}
