package hinter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sourcegraph/conc/panics"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// firstBackoff and lastBackoff bound the wait before a reconnect, which
	// doubles each time; there is no last try (the kubelet's five gave up on a
	// containerd restart of 0.4 s: kubernetes#129827).
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
	// unsupportedBackoff is the wait if the runtime has no events: it may be
	// upgraded or configured anew.
	unsupportedBackoff = 5 * time.Minute
	// provenAfter is for how long a stream must live to count as up: a runtime
	// without events lets it be opened, and then ends it.
	provenAfter = 500 * time.Millisecond
)

// signal is what the follower tells the loop: an event, that a stream was
// opened, or that it has ended, and then whether that is fatal.
type signal struct {
	hint   *pleg.Hint
	opened bool
	fatal  error
}

// follow keeps the stream of events open until ctx ends. It does nothing with
// an event but hand it over to a loop that never waits for anything: a client
// that reads late makes containerd wait, and with it all other clients.
func (h *Hinter) follow(ctx context.Context, signals chan<- signal) {
	backoff := firstBackoff
	noted := false
	for {
		began := time.Now()
		err := h.watch(ctx, signals)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastBackoff {
			backoff = firstBackoff
		}
		wait := backoff/2 + rand.N(backoff/2)
		backoff = min(2*backoff, lastBackoff)
		ended := signal{}
		switch none := errors.Is(err, pleg.ErrNoEvents); {
		case none && h.opts.Required:
			ended.fatal = fmt.Errorf("follow the runtime's events: %w", err)
		case none:
			wait = unsupportedBackoff
			if !noted {
				noted = true
				h.log.InfoContext(ctx, "no container events to be had, pods are found by relisting alone", "err", err)
			}
		default:
			h.metrics.breaks.Inc()
			h.log.WarnContext(ctx, "the stream of container events broke, will be opened again", "wait", wait, "err", err)
		}
		send(ctx, signals, ended)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// watch follows one stream to its end.
func (h *Hinter) watch(ctx context.Context, signals chan<- signal) (err error) {
	opened := func() { send(ctx, signals, signal{opened: true}) }
	hint := func(hint pleg.Hint) { send(ctx, signals, signal{hint: &hint}) }
	// The runtime may be the embedder's: its panic costs this stream only.
	if caught := panics.Try(func() { err = h.opts.Events.WatchEvents(ctx, opened, hint) }); caught != nil {
		h.log.ErrorContext(ctx, "the runtime panicked in WatchEvents", "err", caught.AsError())
		return fmt.Errorf("panic: %v", caught.Value)
	}
	if err == nil {
		return errors.New("the stream ended without an error")
	}
	return err
}

func send(ctx context.Context, signals chan<- signal, s signal) {
	select {
	case signals <- s:
	case <-ctx.Done():
	}
}
