package verdict

import (
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Ages remember since when the troubles last that a status shows without their begin. The zero
// value is ready to use, also concurrently.
type Ages struct {
	mu    sync.Mutex
	since pleg.Since
}

// Complete sets Since in a status. What was not there at the last call begins now, so that it must
// be called often.
func (a *Ages) Complete(s *pleg.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	keep := func(since *time.Time, is bool) {
		switch {
		case !is:
			*since = time.Time{}
		case since.IsZero():
			*since = s.At
		}
	}
	keep(&a.since.Unhealthy, !s.Healthy)
	keep(&a.since.Degraded, s.Degraded != nil)
	keep(&a.since.Slow, DefaultLimits.slow(*s) != nil)
	s.Since = a.since
}
