package simruntime

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
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
	mu      sync.Mutex // guards the fields below; locked inside Runtime.mu
	rng     *rand.Rand
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
		if c.loss > 0 && h.rng.Float64() < c.loss {
			continue
		}
		select {
		case c.queue <- queued{ev, time.Now()}:
		default:
			h.dropped()
		}
	}
}

// connect returns a client and the context of its stream, which BreakEvents ends.
func (h *hub) connect(ctx context.Context, faults []*rule) (context.Context, *eventClient) {
	ctx, end := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &eventClient{queue: make(chan queued, clientBuffer), end: end}
	for _, r := range faults {
		c.late, c.loss = c.late+r.Latency, max(c.loss, r.Loss)
	}
	h.clients = append(h.clients, c)
	return ctx, c
}

func (h *hub) disconnect(c *eventClient) {
	c.end(nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients = slices.DeleteFunc(h.clients, func(o *eventClient) bool { return o == c })
}

// eventClient is one open GetContainerEvents stream.
type eventClient struct {
	queue chan queued
	end   context.CancelCauseFunc
	late  time.Duration // from an event to its sending
	loss  float64       // probability that an event is lost
}

// run sends events until the context ends or sending fails.
func (c *eventClient) run(ctx context.Context, send func(*cri.ContainerEventResponse) error) error {
	for ctx.Err() == nil { // else it ends, even if events are queued
		select {
		case q := <-c.queue:
			wait := time.Until(q.when.Add(c.late))
			if wait > 0 && backoff.Wait(ctx, wait) != nil {
				continue
			}
			if err := send(q.ev); err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}
	return contextError(ctx)
}
