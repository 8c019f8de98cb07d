package cri

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// lists is the state that the client keeps from one list to the next.
type lists struct {
	sandboxes  *list
	containers *list
	joiner     *joiner
	skipped    *skipped
	last       []*pleg.Pod
	// seen are the sandboxes that single-pod lists have shown since the last list that succeeded.
	seen map[string]struct{}
	// refused are the sandboxes whose containers in one state were too large in the last list; the id is
	// empty if the sandboxes in one state were.
	refused map[pleg.ContainerID]struct{}
}

// list is one of the two lists of the runtime.
type list struct {
	*table
	what   string // for errors
	method string
	whole  proto.Message // the request
	// tooLarge is the error of the whole list if that is too large. The client tries the whole list
	// again at the time retry, or once the connection is not on any more.
	tooLarge error
	on       *connection
	retry    time.Time
}

func newLists(c *Client) *lists {
	return &lists{
		sandboxes:  &list{table: newSandboxTable(), what: "list pod sandboxes", method: runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, whole: &runtimeapi.ListPodSandboxRequest{}},
		containers: &list{table: newContainerTable(), what: "list containers", method: runtimeapi.RuntimeService_ListContainers_FullMethodName, whole: &runtimeapi.ListContainersRequest{}},
		joiner:     newJoiner(c.unlistedSandbox),
		seen:       make(map[string]struct{}),
		refused:    make(map[pleg.ContainerID]struct{}),
		skipped:    &skipped{log: c.opts.Logger, metrics: c.metrics, warned: make(map[skippedItem]struct{})},
	}
}

// ListPods returns every pod with all its containers and sandboxes, dead ones too, each newest first;
// the pods are in no order. A pod, a container or a sandbox that did not change since the last list is
// the same pointer.
//
// It blocks until both list calls have answered, one has failed, or ctx or Options.ListTimeout has
// ended. The error wraps the grpc status of the list that failed, and [pleg.ErrUnavailable] if there is
// no runtime or it is not ready.
func (c *Client) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	var l *lists
	select {
	case l = <-c.lists:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the running list: %w", context.Cause(ctx))
	}
	defer func() { c.lists <- l }()
	callCtx, cancel := context.WithTimeout(ctx, c.opts.ListTimeout)
	defer cancel()
	for len(c.seen) > 0 && len(l.seen) < maxSeen {
		l.seen[<-c.seen] = struct{}{}
	}
	if err := c.listBoth(callCtx, l); err != nil {
		if silent(err) {
			c.awaitAnswer(ctx)
		}
		return nil, err
	}
	clear(l.seen)
	if c.join(callCtx, l) {
		c.last.Store(&lastList{pods: l.last, unlabelled: l.joiner.unlabelled})
		c.forgetUnlisted(l.joiner.orphans)
	}
	c.noteTooLarge(l)
	for _, s := range allSkipped(l.sandboxes.table, l.containers.table, l.joiner) {
		l.skipped.add(ctx, s)
	}
	return slices.Clone(l.last), nil
}

// listBoth lists the sandboxes and the containers at the same time. It then lists in portions those
// that are too large for one answer.
func (c *Client) listBoth(ctx context.Context, l *lists) error {
	calls, callCtx := errgroup.WithContext(ctx)
	defer func() { _ = calls.Wait() }() // also if the list of containers panics
	calls.Go(func() error { return c.listWhole(callCtx, l.sandboxes) })
	// On this goroutine: another one would have to grow its stack at each relist.
	if err := c.listWhole(callCtx, l.containers); err != nil {
		calls.Go(func() error { return err }) // ends the list of sandboxes, unless that failed first
	}
	if err := calls.Wait(); err != nil {
		return err
	}
	clear(l.refused)
	for _, of := range []*list{l.sandboxes, l.containers} {
		if of.tooLarge == nil {
			continue
		}
		of.startList()
		of.portioned = true
		if err := c.listPortions(ctx, l, of, of.whole); err != nil {
			return err
		}
		if len(l.refused) > 0 && len(of.items) == 0 { // an empty list would be wrong
			return fmt.Errorf("%w; none is known by its id", of.tooLarge)
		}
		of.finishList()
	}
	return nil
}

// listWhole fills a table from one answer, unless the list is too large for that.
func (c *Client) listWhole(ctx context.Context, l *list) error {
	if l.on == c.observed.last.Load() && time.Now().Before(l.retry) {
		return nil
	}
	l.tooLarge = nil
	err := c.list(ctx, "", l, l.whole)
	if isTooLarge(err) {
		l.tooLarge, l.on, l.retry = err, c.observed.last.Load(), time.Now().Add(portionedFor)
		return nil // the other list continues
	}
	return err
}

// list fills a table from one answer about one pod, or about all pods if uid is empty.
func (c *Client) list(ctx context.Context, uid pleg.PodUID, l *list, request proto.Message) error {
	l.startList()
	if err := c.invoke(ctx, uid, l, request); err != nil {
		return c.wrapList(l.what, err)
	}
	l.finishList()
	return nil
}

// invoke makes one call and adds its answer to the table.
func (c *Client) invoke(ctx context.Context, uid pleg.PodUID, l *list, request proto.Message) error {
	defer c.inFlight.begin(pleg.Call{Method: path.Base(l.method), PodUID: uid})()
	return c.conn.Invoke(ctx, l.method, request, l.table, grpc.StaticMethod(), grpc.ForceCodecV2(listCodec{protobuf}))
}

// join joins the items of both tables, and the statuses of sandboxes that they lack. It reports
// whether something changed.
func (c *Client) join(ctx context.Context, l *lists) bool {
	changed := l.join()
	if c.askUnlisted(ctx, l.joiner) {
		l.sandboxes.changed = true
		changed = l.join()
	}
	return changed
}

func (l *lists) join() bool {
	if !l.sandboxes.changed && !l.containers.changed {
		return false
	}
	l.last = l.joiner.join(l.sandboxes.items, l.containers.items)
	l.sandboxes.changed, l.containers.changed = false, false
	return true
}

// allSkipped returns the malformed items of a list, and the items that belong to no pod or to a pod
// that shares its UID.
func allSkipped(sandboxes, containers *table, j *joiner) []skippedItem {
	all := slices.Concat(sandboxes.skipped, containers.skipped)
	for _, c := range j.homeless {
		all = append(all, c.skipped(noPod))
	}
	for _, it := range j.renamed {
		all = append(all, it.skipped(sharedUID))
	}
	return all
}

// wrapList adds the list that failed to an error, and what to do if the list is too
// large.
func (c *Client) wrapList(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case isTooLarge(err):
		return fmt.Errorf("%s: the list exceeds the %d bytes of Options.MaxRecvBytes, or the runtime's own limit: %w",
			operation, c.opts.MaxRecvBytes, err)
	case silent(err):
		return fmt.Errorf("%s: it accepts connections but does not answer: %w", operation, err)
	case status.Code(err) == codes.Unavailable: // there is no runtime, or it is not ready
		return fmt.Errorf("%s: %w: %w", operation, pleg.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}
