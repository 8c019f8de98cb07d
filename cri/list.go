package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// began is the start of the last list that succeeded.
	began time.Time
	// portioned is the time until which the client does not try the whole list of
	// sandboxes.
	portioned time.Time
	// seen are the sandboxes that CRI events and single-pod lists have shown since
	// the last list.
	seen map[pleg.ContainerID]struct{}
}

// list is one of the two lists of the runtime, unary or streamed.
type list struct {
	*table
	what             string // for errors
	unary, stream    string // the methods
	every, streamAll proto.Message
	// unstreamed is the number of the connection on which the runtime did not
	// support the stream.
	unstreamed int64
}

func newLists(c *Client) *lists {
	return &lists{
		sandboxes: &list{
			table: newSandboxTable(), what: "list pod sandboxes", unstreamed: noConnection,
			unary: runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, every: &runtimeapi.ListPodSandboxRequest{},
			stream: runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName, streamAll: &runtimeapi.StreamPodSandboxesRequest{},
		},
		containers: &list{
			table: newContainerTable(), what: "list containers", unstreamed: noConnection,
			unary: runtimeapi.RuntimeService_ListContainers_FullMethodName, every: &runtimeapi.ListContainersRequest{},
			stream: runtimeapi.RuntimeService_StreamContainers_FullMethodName, streamAll: &runtimeapi.StreamContainersRequest{},
		},
		joiner:  newJoiner(c.unlistedSandbox),
		skipped: &skipped{log: c.opts.Logger, metrics: c.metrics, warned: make(map[skippedItem]struct{})},
	}
}

// noConnection is not the number of any connection.
const noConnection = -1

// ListPods returns every pod with all its containers and sandboxes, dead ones
// too, each newest first; the pods are in no order. A pod, a container or a
// sandbox that did not change since the last list is the same pointer.
//
// It blocks until both list calls have answered, one has failed, or ctx or
// Options.ListTimeout has ended. The error wraps the grpc status of the list that failed,
// and [pleg.ErrUnavailable] if there is no runtime or it is not ready.
func (c *Client) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	l, err := c.acquireLists(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { c.lists <- l }()
	pods, err := c.listPods(ctx, l)
	if silent(err) {
		c.awaitAnswer(ctx)
	}
	return pods, err
}

// acquireLists waits until no list is running. The caller sends the lists back when
// it is done.
func (c *Client) acquireLists(ctx context.Context) (*lists, error) {
	select {
	case l := <-c.lists:
		return l, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the running list: %w", context.Cause(ctx))
	}
}

func (c *Client) listPods(ctx context.Context, l *lists) ([]*pleg.Pod, error) {
	began := time.Now()
	unlabelled := c.unlabelledEvents.Load()
	callCtx, cancel := context.WithTimeout(ctx, c.opts.ListTimeout)
	defer cancel()
	l.seen = c.seen.drain()
	if err := c.listBoth(callCtx, l); err != nil {
		c.seen.restore(l.seen)
		return nil, err
	}
	l.began = began
	if c.join(callCtx, l) {
		c.known.Store(&known{pods: l.last, unlabelled: l.joiner.unlabelled, renamed: l.joiner.renamed})
		c.forgetUnlisted(l.joiner.orphans)
		c.inspected.Range(func(uid, _ any) bool {
			if l.joiner.byUID[uid.(pleg.PodUID)] == nil {
				c.inspected.Delete(uid)
			}
			return true
		})
	}
	c.unlabelledListed.Store(unlabelled)
	l.countSkipped(ctx)
	return slices.Clone(l.last), nil
}

func (c *Client) listBoth(ctx context.Context, l *lists) error {
	if time.Now().Before(l.portioned) {
		return c.listPortioned(ctx, l)
	}
	calls, callCtx := errgroup.WithContext(ctx)
	defer func() { _ = calls.Wait() }() // also if the list of containers panics
	var tooLarge error
	calls.Go(func() error {
		err := c.list(callCtx, l.sandboxes)
		if status.Code(err) == codes.ResourceExhausted {
			tooLarge, err = err, nil // the list of containers continues
		}
		return err
	})
	// On this goroutine: another has to grow its stack at each relist.
	if err := c.list(callCtx, l.containers); err != nil {
		calls.Go(func() error { return err }) // ends the list of sandboxes, unless that failed first
	}
	if err := calls.Wait(); err != nil {
		return err
	}
	if tooLarge != nil {
		return c.startPortions(ctx, l, tooLarge)
	}
	c.stopPortions(ctx)
	return nil
}

// list fills a table, from the stream if the runtime supports it. An error of the
// stream discards the items received so far.
func (c *Client) list(ctx context.Context, l *list) error {
	if !c.opts.UnaryLists && c.counted.connections.Load() != l.unstreamed {
		err := c.metrics.operations[l.stream].measure(func() error { return c.receive(ctx, l) })
		if status.Code(err) != codes.Unimplemented {
			return c.wrapList(l.what, err)
		}
		l.unstreamed = c.counted.connections.Load()
	}
	return c.listUnary(ctx, "", l, l.every)
}

// listUnary fills a table from one answer about one pod, or about all pods if uid is empty.
func (c *Client) listUnary(ctx context.Context, uid pleg.PodUID, l *list, request any) error {
	l.startList()
	if err := c.invoke(ctx, uid, l, request); err != nil {
		return c.wrapList(l.what, err)
	}
	l.finishList()
	return nil
}

// invoke makes one call and adds what it answers to the table.
func (c *Client) invoke(ctx context.Context, uid pleg.PodUID, l *list, request any) error {
	defer c.inFlight.begin(pleg.Call{Method: path.Base(l.unary), PodUID: uid})()
	return c.conn.Invoke(ctx, l.unary, request, l.table, grpc.StaticMethod(), forceListCodec())
}

// receive reads a stream to its end. A runtime without streams returns Unimplemented
// at the first batch, not when the stream is opened.
func (c *Client) receive(ctx context.Context, l *list) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream after an error
	defer c.inFlight.begin(pleg.Call{Method: path.Base(l.stream)})()
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, l.stream, grpc.StaticMethod(), forceListCodec())
	if err != nil {
		return err
	}
	if err := stream.SendMsg(l.streamAll); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	l.startList()
	for {
		switch err := stream.RecvMsg(l.table); {
		case errors.Is(err, io.EOF):
			l.finishList()
			return nil
		case err != nil:
			return err
		}
	}
}

// join joins the items of both tables, and what the runtime says of sandboxes that they lack. It
// reports whether something changed.
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

// countSkipped counts the malformed items, including the last list's.
func (l *lists) countSkipped(ctx context.Context) {
	for _, s := range allSkipped(l.sandboxes.table, l.containers.table, l.joiner) {
		l.skipped.add(ctx, s.item, s.reason)
	}
}

// allSkipped returns the malformed items of a list, and the items that belong to no pod or to a pod
// that shares its UID.
func allSkipped(sandboxes, containers *table, j *joiner) []skippedEntry {
	all := slices.Concat(sandboxes.skipped, containers.skipped)
	for _, c := range j.homeless {
		all = append(all, skippedEntry{c, noPod})
	}
	for _, it := range j.renamed {
		all = append(all, skippedEntry{it, sharedUID})
	}
	return all
}

// wrapList adds the list that failed to an error, and what to do if the list is too
// large.
func (c *Client) wrapList(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case status.Code(err) == codes.ResourceExhausted:
		return fmt.Errorf("%s: the list exceeds the %d bytes of Options.MaxRecvBytes, or the runtime's own limit: %w",
			operation, c.opts.MaxRecvBytes, err)
	case silent(err):
		return fmt.Errorf("%s: it accepts connections but does not answer: %w", operation, err)
	case status.Code(err) == codes.Unavailable: // there is no runtime, or it is not ready
		return fmt.Errorf("%s: %w: %w", operation, pleg.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}
