package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// eventWindow is how many bytes of events the runtime may send before this
	// client reads them: about 5000 to 15 000 events of 1 to 3 kB, and the most
	// memory that they use here; grpc's default of 64 KiB holds 30 to 60. The
	// window absorbs events while this process is short of CPU. While the process
	// is stopped, nothing reads the socket, and containerd 2.4 waits after about
	// 300 events whatever the window (measured; 288 with grpc's default).
	eventWindow = 16 << 20
	// offWithin is how soon a runtime ends a stream if its events are switched off. One
	// whose events have worked may also do so, because it restarts.
	offWithin = time.Second
)

// errStreamEnded means that the runtime ended the stream without a reason.
var errStreamEnded = errors.New("the runtime ended the stream")

// WatchEvents follows the runtime's CRI events on a connection of its own and calls
// hint with each. It blocks until ctx or the stream ends, and always returns an
// error. It calls opened once the stream has been requested and the runtime has
// answered another call over the same connection; only the first event, or the end
// of the stream, shows whether the runtime supports events. If the runtime does
// not answer for Options.EventProbePeriod and twice Options.EventProbeTimeout,
// WatchEvents ends the stream. Both functions are called by this goroutine; while
// hint blocks, the runtime may send 16 MiB ahead.
//
// The error wraps [pleg.ErrNoEvents] if the runtime has no events or has them
// switched off, and otherwise the grpc status or one of [pleg.ErrUnavailable].
//
// An event that is malformed, or does not carry all that the runtime knows of the
// sandbox, becomes a hint without Pod, with as much else as it says.
func (c *Client) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var prober sync.WaitGroup
	defer prober.Wait()
	defer cancel(nil) // ends the stream if hint panics
	p := &probe{runtime: runtimeapi.NewRuntimeServiceClient(c.events), opts: c.opts}
	began := time.Now()
	stream, err := p.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}, forceEventCodec(c.metrics.malformed[notUTF8].Inc))
	if err == nil {
		err = p.once(ctx)
	}
	if err == nil {
		opened()
		prober.Go(func() { cancel(p.run(ctx)) })
		err = c.receiveEvents(stream, began, p, hint)
	}
	if cause := context.Cause(ctx); errors.Is(cause, errUnresponsive) {
		err = cause
	}
	return fmt.Errorf("watch container events: %w", err)
}

// receiveEvents passes on the events of a stream until it ends.
func (c *Client) receiveEvents(stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], began time.Time, p *probe, hint func(pleg.Hint)) error {
	for {
		event, err := stream.Recv()
		if err == nil || time.Since(began) >= offWithin {
			c.hasEvents.Store(true)
		}
		switch {
		case errors.Is(err, io.EOF) && !c.hasEvents.Load():
			return fmt.Errorf("%w: %w", pleg.ErrNoEvents, errStreamEnded)
		case errors.Is(err, io.EOF):
			return errStreamEnded
		case status.Code(err) == codes.Unimplemented:
			return fmt.Errorf("%w: %w", pleg.ErrNoEvents, err)
		case err != nil:
			return err
		}
		p.received.Add(1)
		hint(c.hint(event, time.Now()))
	}
}

// probeTries is how many probes in a row must pass their deadline. One is not
// enough: this process may have been stopped in the middle of it.
const probeTries = 2

// errUnresponsive ends a stream whose runtime does not respond.
var errUnresponsive = fmt.Errorf("%w: it answers no call and sends no event", pleg.ErrUnavailable)

// probe checks that a runtime whose events are followed still responds. gRPC's own
// keepalive does not work here: a server ends a connection that is pinged more
// often than every 5 minutes unless it is configured otherwise, and containerd's is
// not.
type probe struct {
	runtime runtimeapi.RuntimeServiceClient
	opts    Options
	// received is the number of events so far. Each proves that the runtime responds.
	received atomic.Int64
}

// run probes until ctx ends or the runtime does not respond.
func (p *probe) run(ctx context.Context) error {
	ticker := time.NewTicker(p.opts.EventProbePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if err := p.once(ctx); err != nil {
			return err
		}
	}
}

// once returns an error if the runtime neither answers nor sends an event. An
// error is an answer too; a lost connection ends the stream by itself.
func (p *probe) once(ctx context.Context) error {
	before := p.received.Load()
	for range probeTries {
		late := p.call(ctx)
		if !late || ctx.Err() != nil || p.received.Load() != before {
			return nil
		}
	}
	return fmt.Errorf("%w within %d times %v", errUnresponsive, probeTries, p.opts.EventProbeTimeout)
}

// call reports whether an answer did not arrive in time.
func (p *probe) call(ctx context.Context) (late bool) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.EventProbeTimeout)
	defer cancel()
	_, err := p.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	return status.Code(err) == codes.DeadlineExceeded
}
