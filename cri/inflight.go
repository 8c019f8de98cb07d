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

// list returns the calls in flight, the oldest first.
func (f *inFlight) list() []pleg.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := make([]pleg.Call, 0, len(f.calls))
	for call := range f.calls {
		calls = append(calls, *call)
	}
	slices.SortFunc(calls, func(a, b pleg.Call) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Method, b.Method), cmp.Compare(a.ID, b.ID))
	})
	return calls
}
