package simruntime

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// clientBuffer is the number of events kept for a client that does not read.
	clientBuffer = 1000
	// maxHistory bounds what EventFaults.Replay can ask for.
	maxHistory = 1024
)

// queued is an event on its way to a client.
type queued struct {
	ev   *cri.ContainerEventResponse
	when time.Time
	// ordered is true if EventFaults.Reorder does not apply to the event.
	ordered bool
}

// hub sends every event to every client.
type hub struct {
	mu      sync.Mutex // guards what follows; locked inside Runtime.mu
	rng     *rand.Rand
	faults  EventFaults
	clients []*eventClient
	history []queued // oldest first
	dropped func()   // counts an event
}

func (h *hub) publish(ev *cri.ContainerEventResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := queued{ev: ev, when: time.Now()}
	h.history = append(h.history, q)
	h.history = h.history[max(0, len(h.history)-maxHistory):]
	if len(h.clients) == 0 {
		h.dropped()
	}
	for _, c := range h.clients {
		h.offer(c, q)
	}
}

// offer queues an event for a client, or more or less than that with faults.
func (h *hub) offer(c *eventClient, q queued) {
	if h.chance(h.faults.Loss) {
		return
	}
	copies := 1
	if h.chance(h.faults.Duplicate) {
		copies = 2
	}
	for range copies {
		select {
		case c.queue <- q:
		default:
			h.dropped()
		}
		q.ordered = true
	}
}

func (h *hub) chance(p float64) bool { return p > 0 && h.rng.Float64() < p }

// connect adds a client, with the past events that it gets in its queue.
func (h *hub) connect(late time.Duration) *eventClient {
	h.mu.Lock()
	defer h.mu.Unlock()
	past := h.history[len(h.history)-min(h.faults.Replay, len(h.history)):]
	c := &eventClient{hub: h, queue: make(chan queued, clientBuffer+len(past)), broken: make(chan struct{}), late: late}
	for _, q := range past {
		c.queue <- q
	}
	h.clients = append(h.clients, c)
	return c
}

func (h *hub) disconnect(c *eventClient) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients = slices.DeleteFunc(h.clients, func(o *eventClient) bool { return o == c })
}

// reorders draws whether the next event is sent after its successor.
func (h *hub) reorders() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.chance(h.faults.Reorder)
}

func (h *hub) delay() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.faults.Delay
}

// eventClient is one open GetContainerEvents stream.
type eventClient struct {
	hub       *hub
	queue     chan queued
	broken    chan struct{} // closed when BreakEvents ends the stream
	late      time.Duration // added to EventFaults.Delay
	overtaken *queued       // sent next: Reorder has sent its successor first
}

// run sends events until the context ends, BreakEvents ends the stream, or sending fails.
func (c *eventClient) run(ctx context.Context, send func(*cri.ContainerEventResponse) error) error {
	for {
		q, err := c.next(ctx)
		if err != nil {
			return err
		}
		if err := c.wait(ctx, q.when.Add(c.hub.delay()+c.late)); err != nil {
			return err
		}
		if err := send(q.ev); err != nil {
			return err
		}
	}
}

// next waits for the event to send next.
func (c *eventClient) next(ctx context.Context) (queued, error) {
	if q := c.overtaken; q != nil {
		c.overtaken = nil
		return *q, nil
	}
	first, _, err := c.receive(ctx, nil)
	if err != nil || first.ordered || !c.hub.reorders() {
		return first, err
	}
	second, ok, err := c.receive(ctx, time.After(ReorderHold))
	if err != nil || !ok {
		return first, err
	}
	c.overtaken = &first
	return second, nil
}

// receive returns the next event of the queue, or ok == false if the timer fires first.
func (c *eventClient) receive(ctx context.Context, timer <-chan time.Time) (q queued, ok bool, err error) {
	select {
	case <-c.broken: // even if events are queued
		return queued{}, false, errBroken
	default:
	}
	select {
	case q = <-c.queue:
		return q, true, nil
	case <-timer:
		return queued{}, false, nil
	case <-c.broken:
		return queued{}, false, errBroken
	case <-ctx.Done():
		return queued{}, false, contextError(ctx)
	}
}

// wait waits until a time, the end of ctx or of the stream.
func (c *eventClient) wait(ctx context.Context, until time.Time) error {
	wait := time.Until(until)
	if wait <= 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-c.broken:
		return errBroken
	case <-ctx.Done():
		return contextError(ctx)
	}
}
