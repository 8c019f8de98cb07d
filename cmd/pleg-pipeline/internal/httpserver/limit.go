package httpserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

// limit lets h answer at most n requests at the same time. Another one waits for its turn, and
// is refused if that does not come in time. The refusal says too many of what there are.
func limit(n int, wait time.Duration, what string, h http.Handler) http.Handler {
	places := semaphore.NewWeighted(int64(n))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		waiting, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		if !places.TryAcquire(1) && places.Acquire(waiting, 1) != nil {
			unavailable(w, fmt.Sprintf("too many %s: %d at a time", what, n))
			return
		}
		defer places.Release(1)
		h.ServeHTTP(w, r)
	})
}
