package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// portionedFor is for how long the list of all sandboxes is not tried again
// after it was too large: the annotations that make it so seldom shrink, and
// each try makes the runtime build the list in vain.
const portionedFor = 5 * time.Minute

// Degraded returns why the lists do not work as they should, or nil: the list of
// sandboxes is too large for the runtime to send (containerd's own limit is 16
// MiB, annotations included) and is made in portions. ListPods works, but a
// sandbox that has no container yet, and that no event has told of, may be found
// late. It does not block and is safe for concurrent use.
func (c *Client) Degraded() error {
	if err := c.degraded.Load(); err != nil {
		return *err
	}
	return nil
}

// goPortioned makes good a list of sandboxes that was too large. The containers
// have been listed.
func (c *Client) goPortioned(ctx context.Context, l *lists, tooLarge error) error {
	if err := c.listPortions(ctx, l); err != nil {
		return fmt.Errorf("%w; in portions: %w", tooLarge, err)
	}
	l.portioned = time.Now().Add(portionedFor)
	if c.Degraded() == nil {
		c.opts.Logger.WarnContext(ctx, "the list of sandboxes is too large for the runtime to send: listed in portions", "err", tooLarge)
	}
	err := fmt.Errorf("sandboxes are listed in portions: %w", tooLarge)
	c.degraded.Store(&err)
	c.metrics.portioned.Set(1)
	return nil
}

func (c *Client) leavePortioned(ctx context.Context) {
	if c.Degraded() == nil {
		return
	}
	c.degraded.Store(nil)
	c.metrics.portioned.Set(0)
	c.opts.Logger.InfoContext(ctx, "the list of sandboxes can be sent as a whole again")
}

// listPortioned lists the containers first: they tell of sandboxes to ask for.
func (c *Client) listPortioned(ctx context.Context, l *lists) error {
	if err := c.list(ctx, l.containers); err != nil {
		return err
	}
	return c.listPortions(ctx, l)
}

// listPortions lists the sandboxes by state, and those of a state that is still
// too much one by one, as far as their ids are known from the last list, from the
// containers, and from events and lists of one pod since. READY is first: what
// leaves it meanwhile is found in the other.
func (c *Client) listPortions(ctx context.Context, l *lists) error {
	l.sandboxes.begin()
	l.sandboxes.portioned = true
	defer func() { l.sandboxes.portioned = false }()
	whole := true
	for _, state := range []runtimeapi.PodSandboxState{
		runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
	} {
		filter := &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: state}}
		switch err := c.listPortion(ctx, l.sandboxes, filter); {
		case status.Code(err) == codes.ResourceExhausted:
			whole = false
		case err != nil:
			return c.wrapList("list pod sandboxes of a state", err)
		}
	}
	if whole {
		l.sandboxes.end()
		return nil
	}
	byState := len(l.sandboxes.items)
	for id := range l.sandboxIDs() {
		if l.sandboxes.placed(id) {
			continue
		}
		filter := &runtimeapi.PodSandboxFilter{Id: string(id)}
		switch err := c.listPortion(ctx, l.sandboxes, filter); {
		case status.Code(err) == codes.NotFound:
		case status.Code(err) == codes.ResourceExhausted:
			l.sandboxes.keep(id) // it exists
		case err != nil:
			return c.wrapList("list pod sandbox "+string(id), err)
		}
	}
	if len(l.sandboxes.items) == byState {
		return errNoPortion
	}
	l.sandboxes.end()
	return nil
}

// errNoPortion is that sandboxes exist and none was found: no list, rather than
// an empty node.
var errNoPortion = errors.New("too many sandboxes, and none is known by its id")

func (c *Client) listPortion(ctx context.Context, l *list, filter *runtimeapi.PodSandboxFilter) error {
	return c.invoke(ctx, l.unary, &runtimeapi.ListPodSandboxRequest{Filter: filter}, batch{l.table})
}

// sandboxIDs returns the ids of all sandboxes that the client knows of.
func (l *lists) sandboxIDs() map[pleg.ContainerID]struct{} {
	ids := make(map[pleg.ContainerID]struct{}, len(l.sandboxes.known))
	for id := range l.sandboxes.known {
		ids[pleg.ContainerID(id)] = struct{}{}
	}
	for _, c := range l.containers.items {
		if c.SandboxID != "" {
			ids[c.SandboxID] = struct{}{}
		}
	}
	maps.Copy(ids, l.sighted)
	return ids
}
