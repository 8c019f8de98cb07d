package fleet

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

// backoff is the time between attempts: it doubles from shortest to longest, and half of
// it is random. A connection that is made again ends it.
type backoff struct {
	conn              *nats.Conn
	shortest, longest time.Duration
	now               time.Duration
	// reconnects counts those before the last attempt.
	reconnects uint64
}

func newBackoff(conn *nats.Conn, shortest, longest time.Duration) *backoff {
	return &backoff{conn: conn, shortest: shortest, longest: longest, now: shortest, reconnects: conn.Stats().Reconnects}
}

func (b *backoff) reset() { b.now = b.shortest }

// next returns a time for the next wait.
func (b *backoff) next() time.Duration { return b.now/2 + rand.N(b.now/2+1) }

// returnJitter spreads the agents of a fleet when their server is back.
const returnJitter = 500 * time.Millisecond

// wait waits for a time that next returned. If the connection is lost, or was during the
// last attempt, wait ends soon after it is made again.
func (b *backoff) wait(ctx context.Context, d time.Duration) error {
	b.now = min(2*b.now, b.longest)
	connected := b.conn.StatusChanged(nats.CONNECTED)
	defer b.conn.RemoveStatusListener(connected)
	defer func() { b.reconnects = b.conn.Stats().Reconnects }()
	if !b.conn.IsConnected() || b.conn.Stats().Reconnects == b.reconnects {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-connected:
		}
	}
	b.reset()
	select {
	case <-time.After(rand.N(returnJitter)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
