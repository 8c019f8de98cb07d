package simruntime

import (
	"context"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventClient is one open GetContainerEvents stream. Its queue is guarded by
// the hub's lock; one goroutine, the stream's, empties it.
type eventClient struct {
	hub    *hub
	queue  []queued
	wake   chan struct{} // capacity 1: the queue is not empty
	broken chan struct{} // closed when the stream is to break

	late time.Duration // each event is sent so late, besides EventFaults.Delay

	held *queued // put back by Reorder; only the stream's goroutine uses it
}

func (c *eventClient) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run sends events until the context ends, the stream is made to break, or
// sending fails.
func (c *eventClient) run(ctx context.Context, breakAfter int, send func(*cri.ContainerEventResponse) error) error {
	for sent := 0; breakAfter == 0 || sent < breakAfter; sent++ {
		q, err := c.next(ctx)
		if err != nil {
			return err
		}
		if err := send(q.ev); err != nil {
			return err
		}
		c.hub.countSent()
	}
	return errBroken
}

// next waits for the event to be sent next.
func (c *eventClient) next(ctx context.Context) (queued, error) {
	for {
		select {
		case <-c.broken: // before what is queued
			return queued{}, errBroken
		default:
		}
		q, ok, swap := c.pop()
		switch {
		case ok && swap:
			c.held = &q
			continue
		case ok:
			return q, c.await(ctx, q)
		}
		if q, ok, err := c.idle(ctx); ok || err != nil {
			return q, err
		}
	}
}

// pop takes the first of the queue; swap says that it is to go second. The
// event held back goes right after the one that overtook it.
func (c *eventClient) pop() (q queued, ok, swap bool) {
	h := c.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(c.queue) == 0 {
		return queued{}, false, false
	}
	q = c.queue[0]
	if c.held != nil {
		c.queue[0] = *c.held
		c.queue[0].settled = true
		c.held = nil
		return q, true, false
	}
	c.queue[0] = queued{}
	c.queue = c.queue[1:]
	h.pump()
	return q, true, !q.settled && h.chance(h.faults.Reorder)
}

// idle waits for something to happen; ok means that the event held back has
// waited long enough and is to go.
func (c *eventClient) idle(ctx context.Context) (q queued, ok bool, err error) {
	var hold <-chan time.Time
	if c.held != nil {
		timer := time.NewTimer(ReorderHold)
		defer timer.Stop()
		hold = timer.C
	}
	select {
	case <-c.wake:
		return queued{}, false, nil
	case <-hold:
		q = *c.held
		c.held = nil
		return q, true, c.await(ctx, q)
	case <-c.broken:
		return queued{}, false, errBroken
	case <-ctx.Done():
		return queued{}, false, contextError(ctx)
	}
}

// await waits until a delayed event is due.
func (c *eventClient) await(ctx context.Context, q queued) error {
	wait := time.Until(q.when.Add(c.hub.delay() + c.late))
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.broken:
		return errBroken
	case <-ctx.Done():
		return contextError(ctx)
	}
}

func (h *hub) delay() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.faults.Delay
}

func (h *hub) countSent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.s.Sent++
}
