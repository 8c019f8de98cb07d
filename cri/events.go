package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// eventWindow is how many bytes of events the runtime may send ahead of this
	// client's reading: some 5000 to 15 000 events of 1 to 3 kB, and the most
	// memory that they take here; grpc's own 64 KiB are 30 to 60. It absorbs
	// what arrives while this process is short of CPU. While it is stopped
	// nothing takes events off the socket: containerd 2.4 then waits after some
	// 300 of them whatever the window (measured; 288 with grpc's own).
	eventWindow = 16 << 20
	// offWithin is how soon a runtime ends a stream that it does not offer.
	offWithin = time.Second
)

// errStreamEnded is the end of a stream that the runtime gave no reason for.
var errStreamEnded = errors.New("the runtime ended the stream")

// WatchEvents follows the runtime's container events until ctx ends or the
// stream does, on a connection of its own, and calls hint with each. It calls
// opened once the stream has been asked for and the runtime has answered another
// call over the same connection; only its end, or the first event, shows whether
// the runtime offers it. A runtime that does not answer for
// Options.EventProbePeriod and twice Options.EventProbeTimeout ends the stream.
// The error wraps [pleg.ErrNoEvents] if the runtime has no events or has them
// switched off, and otherwise the grpc status or one of [pleg.ErrUnavailable].
//
// An event that is malformed, or does not carry all of what the runtime knows of
// the sandbox, becomes a hint without Pod, with as much else as it tells.
func (c *Client) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var prober sync.WaitGroup
	defer prober.Wait()
	defer cancel(nil) // ends the stream should hint panic
	p := &probe{client: c}
	began := time.Now()
	stream, err := c.openEvents(ctx)
	if err == nil {
		err = p.once(ctx)
	}
	if err == nil {
		opened()
		prober.Go(func() { cancel(p.run(ctx)) })
		err = c.receiveEvents(stream, began, p, hint)
	}
	if silent := context.Cause(ctx); errors.Is(silent, errSilent) {
		err = silent
	}
	return fmt.Errorf("watch container events: %w", err)
}

// openEvents asks for the stream of events.
func (c *Client) openEvents(ctx context.Context) (grpc.ClientStream, error) {
	stream, err := c.events.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, runtimeapi.RuntimeService_GetContainerEvents_FullMethodName,
		grpc.StaticMethod(), grpc.ForceCodecV2(newEventCodec()))
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(&runtimeapi.GetEventsRequest{}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream, stream.CloseSend()
}

// receiveEvents hands on the events of a stream until it ends.
func (c *Client) receiveEvents(stream grpc.ClientStream, began time.Time, p *probe, hint func(pleg.Hint)) error {
	convert, event := converter{client: c}, newEvent()
	for first := true; ; first = false {
		err := stream.RecvMsg(event)
		switch {
		case errors.Is(err, io.EOF) && first && time.Since(began) < offWithin:
			return fmt.Errorf("%w: %w", pleg.ErrNoEvents, errStreamEnded)
		case errors.Is(err, io.EOF):
			return errStreamEnded
		case status.Code(err) == codes.Unimplemented:
			return fmt.Errorf("%w: %w", pleg.ErrNoEvents, err)
		case err != nil:
			return err
		}
		p.received.Add(1)
		hint(convert.hint(event, time.Now()))
	}
}
