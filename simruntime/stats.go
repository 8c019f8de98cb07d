package simruntime

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
)

// RPCStats count the calls of one RPC since the last reset.
type RPCStats struct {
	Calls   int64         // That arrived.
	Verbose int64         // Calls that asked for verbose details.
	Time    time.Duration // Sum of the time executing, latency included.
	Spoiled int64         // Calls that a fault affected.
}

// Stats are the counters of a [Runtime] at one moment. Calls in flight do not
// include GetContainerEvents, whose calls last until the client ends them.
type Stats struct {
	RPCs map[string]RPCStats // By name in the CRI; only calls that were made.

	InFlight     int // Executing now.
	PeakInFlight int // The most that executed at once.

	// DroppedEvents were not sent because a client did not read, or none was connected.
	DroppedEvents int64
}

// Calls returns the number of calls of all RPCs together.
func (s Stats) Calls() int64 {
	var n int64
	for _, r := range s.RPCs {
		n += r.Calls
	}
	return n
}

// Stats returns a snapshot of the counters.
func (rt *Runtime) Stats() Stats {
	c := rt.stats
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.s
	s.RPCs = maps.Clone(s.RPCs)
	return s
}

// ResetStats sets the counters to zero, and the peak to the calls in flight.
func (rt *Runtime) ResetStats() {
	c := rt.stats
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s = Stats{RPCs: map[string]RPCStats{}, InFlight: c.s.InFlight, PeakInFlight: c.s.InFlight}
}

type counters struct {
	called    chan struct{} // closed at the first call
	closeOnce sync.Once
	mu        sync.Mutex
	s         Stats
}

// count changes the counters of one RPC and, by a number, of the calls that execute.
func (c *counters) count(rpc string, executing int, change func(*RPCStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.s.RPCs[rpc]
	change(&r)
	c.s.RPCs[rpc] = r
	c.s.InFlight += executing
	c.s.PeakInFlight = max(c.s.PeakInFlight, c.s.InFlight)
}

func (c *counters) dropEvent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.DroppedEvents++
}

// SleepAfterCall waits for the first call of a client, and then for d. If ctx ends
// first, it returns context.Cause.
func (rt *Runtime) SleepAfterCall(ctx context.Context, d time.Duration) error {
	select {
	case <-rt.stats.called:
		return backoff.Wait(ctx, d)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
