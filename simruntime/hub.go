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
	// maxHistory bounds what EventFaults.Replay can ask for.
	maxHistory = 1024
	// maxHeld bounds the events kept while there is no client, and those held
	// back by a stalled one; what comes beyond is dropped and counted.
	maxHeld = 10_000
)

// queued is an event on its way to a client.
type queued struct {
	ev   *cri.ContainerEventResponse
	seq  uint64
	when time.Time
	// settled says that its place in the order has been drawn.
	settled bool
}

// hub hands every event to every client.
type hub struct {
	buffer    int
	retention time.Duration

	mu        sync.Mutex // guards what follows; taken inside Runtime.mu
	rng       *rand.Rand
	faults    EventFaults
	clients   []*eventClient // in order of connection
	history   []queued       // last events, for Replay
	unclaimed []queued       // events while there is no client
	backlog   []queued       // events held back by a stalled client
	seq       uint64         // events published
	s         EventStats
	moved     chan struct{} // closed when backlog shrinks; nil if no call waits
}

func newHub(seed uint64, buffer int, retention time.Duration) *hub {
	return &hub{rng: newRand(seed, "events"), buffer: buffer, retention: retention}
}

func (h *hub) setFaults(f EventFaults) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = f
	h.pump()
}

// publish hands out an event and returns its number.
func (h *hub) publish(ev *cri.ContainerEventResponse) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	h.s.Emitted++
	q := queued{ev: ev, seq: h.seq, when: time.Now()}
	h.history = append(h.history, q)
	h.history = h.history[max(0, len(h.history)-maxHistory):]
	switch {
	case len(h.clients) > 0 && len(h.backlog) < maxHeld:
		h.backlog = append(h.backlog, q)
		h.pump()
	case h.retention > 0 && len(h.unclaimed) < maxHeld:
		h.unclaimed = append(h.unclaimed, q)
	default:
		h.s.Dropped++
	}
	return h.seq
}

// pump moves the backlog to the clients, as far as no stalled one prevents it.
func (h *hub) pump() {
	moved := false
	for len(h.backlog) > 0 && !h.stalled() {
		q := h.backlog[0]
		h.backlog[0] = queued{}
		h.backlog = h.backlog[1:]
		for _, c := range h.clients {
			h.offer(c, q)
		}
		moved = true
	}
	if len(h.backlog) == 0 {
		h.backlog = nil
	}
	if moved && h.moved != nil {
		close(h.moved)
		h.moved = nil
	}
}

func (h *hub) stalled() bool {
	if !h.faults.Stall {
		return false
	}
	return slices.ContainsFunc(h.clients, func(c *eventClient) bool { return len(c.queue) >= h.buffer })
}

// offer puts an event in a client's queue, as far as fate allows.
func (h *hub) offer(c *eventClient, q queued) {
	if h.chance(h.faults.Loss) {
		h.s.Lost++
		return
	}
	if len(c.queue) >= h.buffer {
		h.s.Dropped++
		return
	}
	c.queue = append(c.queue, q)
	if h.chance(h.faults.Duplicate) {
		q.settled = true
		c.queue = append(c.queue, q)
	}
	c.signal()
}

func (h *hub) chance(p float64) bool { return p > 0 && h.rng.Float64() < p }

// waitSent waits until the event of that number is past the backlog, as the
// RPC that caused it does in containerd. A seq of zero is past.
func (h *hub) waitSent(ctx context.Context, seq uint64) error {
	for {
		h.mu.Lock()
		if seq <= h.seq-uint64(len(h.backlog)) {
			h.mu.Unlock()
			return nil
		}
		if h.moved == nil {
			h.moved = make(chan struct{})
		}
		moved := h.moved
		h.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (h *hub) connect() (*eventClient, EventFaults) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &eventClient{hub: h, wake: make(chan struct{}, 1), broken: make(chan struct{})}
	past := h.history[len(h.history)-min(h.faults.Replay, len(h.history)):]
	for _, q := range h.unclaimed {
		if time.Since(q.when) <= h.retention && (len(past) == 0 || q.seq < past[0].seq) {
			c.queue = append(c.queue, q)
		}
	}
	c.queue = append(c.queue, past...)
	h.unclaimed = nil
	c.signal()
	h.clients = append(h.clients, c)
	h.s.Connected++
	return c, h.faults
}

func (h *hub) disconnect(c *eventClient) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients = slices.DeleteFunc(h.clients, func(o *eventClient) bool { return o == c })
	h.pump()
}

func (h *hub) breakAll() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, c := range h.clients {
		select {
		case <-c.broken:
		default:
			close(c.broken)
			n++
		}
	}
	return n
}

func (h *hub) stats() EventStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.s
	s.Clients = len(h.clients)
	return s
}

func (h *hub) resetStats() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.s = EventStats{}
}
