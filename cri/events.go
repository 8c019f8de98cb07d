package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// eventWindow is how many bytes of events the runtime may send before this
	// client reads them, and the most memory that they use here. It holds 5000 to
	// 15 000 events while this process is short of CPU; grpc's default of 64 KiB
	// holds 30 to 60. While the process is stopped, containerd 2.4 waits after about
	// 250 events whatever the window (measured).
	eventWindow = 16 << 20
	// offWithin is how soon a runtime ends a stream if its events are switched off. A runtime whose
	// events have worked may also do so, because it restarts.
	offWithin = time.Second
	// oldWithin is how long after the first stream was opened earlier events may come: containerd sends
	// those of five minutes, which takes seconds on a busy node. After it the times of events are ignored,
	// because a clock may be set back.
	oldWithin = time.Minute
)

// errStreamEnded means that the runtime ended the stream without a reason.
var errStreamEnded = errors.New("the runtime ended the stream")

// WatchEvents follows the runtime's CRI events on a connection of its own and calls hint with each,
// until ctx or the stream ends. It calls opened once the stream has been requested and the runtime has
// answered another call: only the first event, or the end of the stream, shows whether the runtime has
// events. Both functions are called by this goroutine. The hint of an event from before the first stream
// names no container.
//
// The error is never nil. It wraps [pleg.ErrNoEvents] if the runtime sends no events or they are switched
// off, and otherwise the grpc status if there is one. A runtime without events is asked once for each
// connection of the lists.
func (c *Client) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream if hint panics
	runtime := runtimeapi.NewRuntimeServiceClient(c.events)
	decode := grpc.ForceCodecV2(eventCodec{protobuf, c.metrics.malformed.Inc})
	began, on := time.Now(), c.observed.last.Load()
	if none := on.noEvents.Load(); none != nil {
		return *none
	}
	c.watched.CompareAndSwap(nil, &began)
	first := *c.watched.Load()
	stream, err := runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}, decode)
	if err == nil {
		_, err = runtime.Version(ctx, &runtimeapi.VersionRequest{})
	}
	if err != nil {
		return fmt.Errorf("watch container events: %w", err)
	}
	opened()
	for {
		event, err := stream.Recv()
		if err == nil || time.Since(began) >= offWithin {
			on.hasEvents.Store(true)
		}
		switch {
		case errors.Is(err, io.EOF) && !on.hasEvents.Load():
			err = fmt.Errorf("%w: %w", pleg.ErrNoEvents, errStreamEnded)
		case errors.Is(err, io.EOF):
			err = errStreamEnded
		case status.Code(err) == codes.Unimplemented:
			err = fmt.Errorf("%w: %w", pleg.ErrNoEvents, err)
		case err == nil && ctx.Err() != nil: // a whole window of events may be here already
			err = status.FromContextError(ctx.Err()).Err()
		}
		if err != nil {
			err = fmt.Errorf("watch container events: %w", err)
			if errors.Is(err, pleg.ErrNoEvents) {
				on.noEvents.Store(&err)
			}
			return err
		}
		h := c.hint(event)
		if at := event.GetCreatedAt(); at > 0 && at < first.UnixNano() && time.Since(first) < oldWithin {
			h.Name = "" // a change that was over before is not new
		}
		hint(h)
	}
}
