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
// opened once the stream has been asked for over a connection that stands; only
// its end, or the first event, shows whether the runtime offers it. The error
// wraps [pleg.ErrNoEvents] if the runtime has no events or has them switched
// off, and the grpc status otherwise.
//
// An event that is malformed, or does not carry all of what the runtime knows of
// the sandbox, becomes a hint without Pod, with as much else as it tells.
func (c *Client) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream should hint panic
	return fmt.Errorf("watch container events: %w", c.watch(ctx, opened, hint))
}

func (c *Client) watch(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	began := time.Now()
	stream, err := runtimeapi.NewRuntimeServiceClient(c.events).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}, grpc.StaticMethod())
	if err != nil {
		return err
	}
	opened()
	convert := converter{client: c}
	for first := true; ; first = false {
		event, err := stream.Recv()
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
		hint(convert.hint(event, time.Now()))
	}
}
