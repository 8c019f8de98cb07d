package httpserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

const (
	// maxRequests is the greatest number of requests for metrics, and for pods, at the
	// same time. Their answers can be large.
	maxRequests = 16
	// maxPageRequests bounds the requests for files of the page. A browser requests all of them at
	// once.
	maxPageRequests = 64
	// maxWait is how long a further request waits for its turn.
	maxWait = 5 * time.Second
	// maxRate is the greatest number of answers with metrics, and with pods, in a second.
	// Clients that ask without end would otherwise take most of the processor time.
	maxRate = 20
)

// limit lets h answer at most n requests at the same time. A further request waits for its turn,
// and is refused if its turn does not come in time. The refusal names the limit.
func limit(n int, wait time.Duration, what string, h http.Handler) http.Handler {
	slots := semaphore.NewWeighted(int64(n))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		waiting, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		if !slots.TryAcquire(1) && slots.Acquire(waiting, 1) != nil {
			unavailable(w, fmt.Sprintf("too many %s: %d at a time", what, n))
			return
		}
		defer slots.Release(1)
		h.ServeHTTP(w, r)
	})
}

// limitRate lets h begin at most maxRate answers a second, and limits them as limit does.
func limitRate(h http.Handler) http.Handler {
	h = limit(maxRequests, maxWait, "requests", h)
	turns := rate.NewLimiter(maxRate, maxRate)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		waiting, cancel := context.WithTimeout(r.Context(), maxWait)
		defer cancel()
		if turns.Wait(waiting) != nil {
			unavailable(w, fmt.Sprintf("too many requests: %d a second", maxRate))
			return
		}
		h.ServeHTTP(w, r)
	})
}
