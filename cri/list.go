package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// lists is what the client keeps from one list to the next.
type lists struct {
	sandboxes  *list
	containers *list
	joiner     *joiner
	skipped    *skipped
	last       []*pleg.Pod
	// began is when the last list that succeeded began.
	began time.Time
	// portioned is until when the sandboxes are listed in portions at once.
	portioned time.Time
	// sighted are the sandboxes that something else has shown since the last list.
	sighted map[pleg.ContainerID]struct{}
}

// list is one of the two lists of the runtime, in its two forms.
type list struct {
	*table
	what             string // for errors
	unary, stream    string // the methods
	every, streamAll proto.Message
	// unstreamed is the connection on which the runtime has shown that it lacks
	// the stream.
	unstreamed int64
}

func newLists(log *slog.Logger, m *metrics) *lists {
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
		joiner:  newJoiner(),
		skipped: newSkipped(log, m),
	}
}

// noConnection is not the number of any connection.
const noConnection = -1

// ListPods returns every pod with all its containers and sandboxes, dead ones
// too, each newest first; the pods are in no order. A pod, a container or a
// sandbox that did not change since the last list is the same pointer. Both
// lists of the runtime are asked for at once, and as streams where it has them.
// It blocks until both have answered, one has failed, or ctx or
// Options.ListTimeout has ended; a concurrent ListPods waits for this one. The
// error wraps the grpc status of the list that failed.
//
// If the runtime cannot send the list of sandboxes because it is too large, they
// are listed in portions; [Client.Degraded] says so.
func (c *Client) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	l, err := c.takeLists(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { c.lists <- l }()
	return c.listPods(ctx, l)
}

// takeLists waits until no list is under way. Whoever has the lists gives them
// back.
func (c *Client) takeLists(ctx context.Context) (*lists, error) {
	select {
	case l := <-c.lists:
		return l, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the list under way: %w", context.Cause(ctx))
	}
}

func (c *Client) listPods(ctx context.Context, l *lists) ([]*pleg.Pod, error) {
	began := time.Now()
	strangers := c.strangers.Load()
	callCtx, cancel := context.WithTimeout(ctx, c.opts.ListTimeout)
	defer cancel()
	l.sighted = c.sightings.take()
	if err := c.listBoth(callCtx, l); err != nil {
		c.sightings.putBack(l.sighted)
		return nil, err
	}
	l.began = began
	if l.join() {
		c.known.Store(newKnown(l))
	}
	c.strangersListed.Store(strangers)
	l.tellSkipped(ctx)
	return slices.Clone(l.last), nil
}

func (c *Client) listBoth(ctx context.Context, l *lists) error {
	if time.Now().Before(l.portioned) {
		return c.listPortioned(ctx, l)
	}
	calls, callCtx := errgroup.WithContext(ctx)
	var tooLarge error
	calls.Go(func() error {
		err := c.list(callCtx, l.sandboxes)
		if status.Code(err) == codes.ResourceExhausted {
			tooLarge, err = err, nil // the containers may go on
		}
		return err
	})
	calls.Go(func() error { return c.list(callCtx, l.containers) })
	if err := calls.Wait(); err != nil {
		return err
	}
	if tooLarge != nil {
		return c.goPortioned(ctx, l, tooLarge)
	}
	c.leavePortioned(ctx)
	return nil
}

// list fills a table, from the stream if the runtime has it. An error of the
// stream discards what it had sent.
func (c *Client) list(ctx context.Context, l *list) error {
	if !c.opts.UnaryLists && c.connections.Load() != l.unstreamed {
		err := c.metrics.operations[l.stream].measure(func() error { return c.receive(ctx, l) })
		if status.Code(err) != codes.Unimplemented {
			return c.wrapList(l.what, err)
		}
		l.unstreamed = c.connections.Load()
	}
	return c.wrapList(l.what, c.invoke(ctx, l.unary, l.every, l.table))
}

// receive reads a stream to its end. A runtime without it says so in place of
// the first batch, not when the stream is opened.
func (c *Client) receive(ctx context.Context, l *list) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that was not read to its end
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, l.stream, grpc.StaticMethod(), grpc.ForceCodecV2(c.codec))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(l.streamAll); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	l.begin()
	for {
		switch err := stream.RecvMsg(batch{l.table}); {
		case errors.Is(err, io.EOF):
			l.end()
			return nil
		case err != nil:
			return err
		}
	}
}

func (c *Client) invoke(ctx context.Context, method string, request, answer any) error {
	return c.conn.Invoke(ctx, method, request, answer, grpc.StaticMethod(), grpc.ForceCodecV2(c.codec))
}

// join puts the items of both tables together if one of them changed, and
// reports whether.
func (l *lists) join() bool {
	if !l.sandboxes.changed && !l.containers.changed {
		return false
	}
	l.last = l.joiner.join(l.sandboxes.items, l.containers.items)
	l.sandboxes.changed, l.containers.changed = false, false
	return true
}

// tellSkipped counts what was malformed, also if it was so the last time.
func (l *lists) tellSkipped(ctx context.Context) {
	for _, s := range slices.Concat(l.sandboxes.skipped, l.containers.skipped) {
		l.skipped.add(ctx, s.item, s.reason)
	}
	for _, c := range l.joiner.homeless {
		l.skipped.add(ctx, c, noPod)
	}
}
