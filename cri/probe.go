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
