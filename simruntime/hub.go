package simruntime

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// clientBuffer is the number of events kept for a client that does not read.
const clientBuffer = 1000

// queued is an event on its way to a client.
type queued struct {
	ev   *cri.ContainerEventResponse
	when time.Time
}

// hub sends every event to every client.
type hub struct {
	mu      sync.Mutex // guards what follows; locked inside Runtime.mu
	rng     *rand.Rand
	faults  EventFaults
	clients []*eventClient
	dropped func() // counts an event
}

func (h *hub) publish(ev *cri.ContainerEventResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.clients) == 0 {
		h.dropped()
	}
	for _, c := range h.clients {
		if h.faults.Loss > 0 && h.rng.Float64() < h.faults.Loss {
			continue
		}
		select {
		case c.queue <- queued{ev, time.Now()}:
		default:
			h.dropped()
		}
	}
}

func (h *hub) connect(late time.Duration) *eventClient {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &eventClient{hub: h, queue: make(chan queued, clientBuffer), broken: make(chan struct{}), late: late}
	h.clients = append(h.clients, c)
	return c
}

func (h *hub) disconnect(c *eventClient) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients = slices.DeleteFunc(h.clients, func(o *eventClient) bool { return o == c })
}

func (h *hub) delay() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.faults.Delay
}

// eventClient is one open GetContainerEvents stream.
type eventClient struct {
	hub    *hub
	queue  chan queued
	broken chan struct{} // closed when BreakEvents ends the stream
	late   time.Duration // added to EventFaults.Delay
}

// run sends events until the context ends, BreakEvents ends the stream, or sending fails.
func (c *eventClient) run(ctx context.Context, send func(*cri.ContainerEventResponse) error) error {
	for {
		select {
		case <-c.broken: // even if events are queued
			return errBroken
		default:
		}
		select {
		case q := <-c.queue:
			if err := c.wait(ctx, q.when.Add(c.hub.delay()+c.late)); err != nil {
				return err
			}
			if err := send(q.ev); err != nil {
				return err
			}
		case <-c.broken:
			return errBroken
		case <-ctx.Done():
			return contextError(ctx)
		}
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
