package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
)

// returns ends a wait between two attempts when the connection is back.
type returns struct {
	conn    *nats.Conn
	backoff *backoff.Backoff
	// reconnects counts those before the last attempt.
	reconnects uint64
}

func newReturns(conn *nats.Conn, b *backoff.Backoff) *returns {
	return &returns{conn: conn, backoff: b, reconnects: conn.Stats().Reconnects}
}

// returnJitter spreads the agents of a fleet when their server is back.
const returnJitter = 500 * time.Millisecond

// wait waits for d. If the connection is lost, or was during the last attempt, wait ends soon
// after it is made again.
func (r *returns) wait(ctx context.Context, d time.Duration) error {
	connected := r.conn.StatusChanged(nats.CONNECTED)
	defer r.conn.RemoveStatusListener(connected)
	defer func() { r.reconnects = r.conn.Stats().Reconnects }()
	if !r.conn.IsConnected() || r.conn.Stats().Reconnects == r.reconnects {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-connected:
		}
	}
	r.backoff.Reset()
	return backoff.Wait(ctx, rand.N(returnJitter))
}

// retry makes attempts until one returns nil, none can succeed, or ctx ends.
func (o *WatchOptions) retry(ctx context.Context, js jetstream.JetStream, retries *backoff.Backoff, attempt func(context.Context) error) error {
	returns := newReturns(js.Conn(), retries)
	for {
		began := time.Now()
		err := attempt(ctx)
		if err == nil || errors.Is(err, errStopped) || errors.Is(err, nats.ErrConnectionClosed) || ctx.Err() != nil {
			return err
		}
		if time.Since(began) > DefaultMaxBackoff {
			retries.Reset()
		}
		retryIn := retries.Next()
		if o.Disconnected != nil {
			o.Disconnected(err, retryIn)
		}
		if err := returns.wait(ctx, retryIn); err != nil {
			return err
		}
	}
}

// errReconnected means that the server may have lost something.
var errReconnected = errors.New("the connection was lost")

// untilReconnected returns a context that ends when the connection is made again: what was under way
// then has no answer. The caller calls stop.
func untilReconnected(ctx context.Context, conn *nats.Conn) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	connected := conn.StatusChanged(nats.CONNECTED)
	go func() {
		for range connected { // until stop closes it
			cancel(errReconnected)
		}
	}()
	return ctx, func() {
		conn.RemoveStatusListener(connected)
		cancel(nil)
	}
}
