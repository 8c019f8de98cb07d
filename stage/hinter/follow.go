package hinter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// firstBackoff and lastBackoff bound the wait before a reconnect, which
	// doubles each time. Reconnecting never stops: the kubelet's five retries did
	// not survive a containerd restart of 0.4 s (kubernetes#129827).
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
	// unsupportedBackoff is the wait if the runtime has no events: it may be
	// upgraded or reconfigured.
	unsupportedBackoff = 5 * time.Minute
)

// streamUpdate is a report of the follower: a hint, an opened stream, or its end,
// which may be fatal.
type streamUpdate struct {
	hint   *pleg.Hint
	opened bool
	fatal  error
}

// followStream keeps the event stream open until ctx ends. It only passes events
// to a loop that never blocks, because a client that reads late makes containerd
// and all its other clients wait.
func (h *Hinter) followStream(ctx context.Context, updates chan<- streamUpdate) {
	reopen := backoff.Backoff{Min: firstBackoff, Max: lastBackoff}
	logged := false
	for {
		began := time.Now()
		err := h.opts.Events.WatchEvents(ctx,
			func() { send(ctx, updates, streamUpdate{opened: true}) },
			func(hint pleg.Hint) { send(ctx, updates, streamUpdate{hint: &hint}) })
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastBackoff {
			reopen.Reset()
		}
		wait := reopen.Next()
		var ended streamUpdate
		switch unsupported := errors.Is(err, pleg.ErrNoEvents); {
		case unsupported && h.opts.Required:
			ended.fatal = fmt.Errorf("follow the runtime's events: %w", err)
		case unsupported:
			wait = unsupportedBackoff
			if !logged {
				logged = true
				h.log.InfoContext(ctx, "runtime does not support container events", "retryAfter", wait, "err", err)
			}
		default:
			h.metrics.breaks.Inc()
			h.log.WarnContext(ctx, "event stream broke, will be reopened", "wait", wait, "err", err)
		}
		send(ctx, updates, ended)
		if backoff.Wait(ctx, wait) != nil {
			return
		}
	}
}

func send(ctx context.Context, updates chan<- streamUpdate, u streamUpdate) {
	select {
	case updates <- u:
	case <-ctx.Done():
	}
}
