package cri

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// inFlight has the calls that have not returned. It is safe for concurrent use.
type inFlight struct {
	mu    sync.Mutex
	calls map[*pleg.Call]struct{}
}

// begin notes that a call begins. The caller must call end when it has returned.
func (f *inFlight) begin(c pleg.Call) (end func()) {
	c.Started = time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[&c] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.calls, &c)
	}
}

// Calls implements [pleg.CallReporter]. It returns the list and status calls in
// flight, without the event stream.
func (c *Client) Calls() []pleg.Call {
	c.inFlight.mu.Lock()
	defer c.inFlight.mu.Unlock()
	calls := make([]pleg.Call, 0, len(c.inFlight.calls))
	for call := range c.inFlight.calls {
		calls = append(calls, *call)
	}
	slices.SortFunc(calls, func(a, b pleg.Call) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Method, b.Method), cmp.Compare(a.ID, b.ID))
	})
	return calls
}
