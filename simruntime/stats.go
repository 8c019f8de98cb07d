package simruntime

import (
	"maps"
	"sync"
	"time"
)

// RPCStats count the calls of one RPC since the last reset.
type RPCStats struct {
	Calls  int64         // That arrived.
	Errors int64         // That ended with an error, cancelled ones included.
	Time   time.Duration // Sum of the time executing, latency included.
	Queued time.Duration // Sum of the time waiting for the concurrency limit.

	Spoiled int64 // That a fault affected.
}

// Stats are the counters of a [Runtime] at one moment. Calls in flight do not
// include GetContainerEvents, whose calls last until the client ends them.
type Stats struct {
	RPCs map[string]RPCStats // By name in the CRI; only those called.

	InFlight     int // Executing now.
	PeakInFlight int // The most that executed at once.
	Arrived      int // Executing or waiting for the concurrency limit now.
	PeakArrived  int

	Events EventStats
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
	s := rt.stats.snapshot()
	s.Events = rt.hub.stats()
	return s
}

// ResetStats sets the counters to zero, and the peaks to the calls in flight.
func (rt *Runtime) ResetStats() {
	rt.stats.reset()
	rt.hub.resetStats()
}

type counters struct {
	called chan struct{} // closed at the first call
	mu     sync.Mutex
	s      Stats
	first  bool // a call has arrived
}

func newCounters() *counters {
	return &counters{called: make(chan struct{}), s: Stats{RPCs: map[string]RPCStats{}}}
}

// Called returns a channel that is closed once a first call has arrived.
func (rt *Runtime) Called() <-chan struct{} { return rt.stats.called }

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.s
	out.RPCs = maps.Clone(c.s.RPCs)
	return out
}

func (c *counters) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s = Stats{
		RPCs:     map[string]RPCStats{},
		InFlight: c.s.InFlight, PeakInFlight: c.s.InFlight,
		Arrived: c.s.Arrived, PeakArrived: c.s.Arrived,
	}
}

// arrive counts a call; held is false if the limit does not apply to it.
func (c *counters) arrive(rpc string, held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.first {
		c.first = true
		close(c.called)
	}
	r := c.s.RPCs[rpc]
	r.Calls++
	c.s.RPCs[rpc] = r
	if held {
		c.s.Arrived++
		c.s.PeakArrived = max(c.s.PeakArrived, c.s.Arrived)
	}
}

func (c *counters) execute(rpc string, queued time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.s.RPCs[rpc]
	r.Queued += queued
	c.s.RPCs[rpc] = r
	c.s.InFlight++
	c.s.PeakInFlight = max(c.s.PeakInFlight, c.s.InFlight)
}

func (c *counters) spoil(rpc string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.s.RPCs[rpc]
	r.Spoiled++
	c.s.RPCs[rpc] = r
}

// leave counts the end of a call; held and executed are what was counted before.
func (c *counters) leave(rpc string, spent time.Duration, held, executed, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.s.RPCs[rpc]
	r.Time += spent
	if failed {
		r.Errors++
	}
	c.s.RPCs[rpc] = r
	if held {
		c.s.Arrived--
	}
	if executed {
		c.s.InFlight--
	}
}
