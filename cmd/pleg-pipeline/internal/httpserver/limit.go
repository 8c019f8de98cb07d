package httpserver

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// limit lets h answer at most n requests at the same time. Another one waits for its turn, and
// is refused if that does not come in time. The refusal says too many of what there are.
func limit(n int, wait time.Duration, what string, h http.Handler) http.Handler {
	slots := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !acquire(r.Context(), slots, wait) {
			unavailable(w, fmt.Sprintf("too many %s: %d at a time", what, n))
			return
		}
		defer func() { <-slots }()
		h.ServeHTTP(w, r)
	})
}

// acquire takes a slot. It returns false if none becomes free in time.
func acquire(ctx context.Context, slots chan<- struct{}, wait time.Duration) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
	}
	if wait == 0 {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
