package cri

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// probeTries is how many probes in a row must have passed their deadline. One
// proves nothing: this process may have been stopped in the midst of it.
const probeTries = 2

// errSilent is the end of a stream whose runtime stands still.
var errSilent = fmt.Errorf("%w: it answers no call and sends no event", pleg.ErrUnavailable)

// probe finds out whether a runtime whose events are followed is alive. gRPC's
// own keepalive would not do: servers end a connection that is pinged more often
// than each 5 minutes, unless they were told otherwise, which containerd's is not.
type probe struct {
	client *Client
	// received is the number of events so far: each is a sign of life.
	received atomic.Int64
}

// run probes until ctx ends or the runtime is found to be silent.
func (p *probe) run(ctx context.Context) error {
	ticker := time.NewTicker(p.client.opts.EventProbePeriod)
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
// error is an answer too; of a lost connection the stream tells by itself.
func (p *probe) once(ctx context.Context) error {
	before := p.received.Load()
	for range probeTries {
		late := p.call(ctx)
		if !late || ctx.Err() != nil || p.received.Load() != before {
			return nil
		}
	}
	return fmt.Errorf("%w within %d times %v", errSilent, probeTries, p.client.opts.EventProbeTimeout)
}

// call reports whether an answer was not there in time.
func (p *probe) call(ctx context.Context) (late bool) {
	ctx, cancel := context.WithTimeout(ctx, p.client.opts.EventProbeTimeout)
	defer cancel()
	_, err := runtimeapi.NewRuntimeServiceClient(p.client.events).Version(ctx, &runtimeapi.VersionRequest{})
	return status.Code(err) == codes.DeadlineExceeded
}
