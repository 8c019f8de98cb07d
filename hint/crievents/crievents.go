// Package crievents follows the CRI events of a container runtime. An event is a reason to list
// its pod, and never data.
//
// The stream is reopened whenever it ends. A runtime without events is asked again every ten seconds:
// it may be upgraded. Package cri asks it once for each connection.
package crievents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// firstBackoff and lastBackoff bound the wait before a reconnect, which
	// doubles each time. Reconnecting never stops: the kubelet's five retries did
	// not survive a containerd restart of 0.4 s (kubernetes#129827).
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
	// upAfter is how long a stream without an event has to live until it counts as up. If the
	// events of the runtime are switched off, the stream is opened and ends at once.
	upAfter = 500 * time.Millisecond
)

// Target learns the state and hints of the stream. Its methods must return at once: a client that reads its
// events late makes containerd and all its other clients wait.
type Target interface {
	// RequestRelist requests a list of one pod, RelistNow a list of all pods, for an event that
	// names no pod.
	RequestRelist(uid pleg.PodUID)
	RelistNow()
	// Announce passes on every event, before the list that it causes.
	Announce(h pleg.Hint)
	// StreamUp reports true once the stream has lived for 500 ms or has sent an event, and false
	// when such a stream ends.
	StreamUp(up bool)
	// Recovered receives when a list succeeds after a failed list. A stream that waits to be
	// reopened is then opened at once: after a restart of CRI-O, lists worked at 0.9 s, and the
	// stream was open at 8.3 s.
	Recovered() <-chan struct{}
}

// Options configure a [Follower].
type Options struct {
	// Required makes a runtime without events an error.
	Required bool
	Logger   *slog.Logger
	Metrics  instrument.Registry
}

// Follower follows the events of one runtime.
type Follower struct {
	events   pleg.EventWatcher
	to       Target
	required bool
	log      *slog.Logger
	metrics  *metrics
	// toldUnsupported is true once it is logged that the runtime has no events, until a stream is
	// up.
	toldUnsupported bool
	// toldBroken is true once a break is logged, until the stream is up again.
	toldBroken bool
}

// New returns a follower that does not run yet. events is nil if the runtime sends none. The error
// says that a metric cannot be registered.
func New(events pleg.EventWatcher, to Target, o Options) (*Follower, error) {
	m, err := newMetrics(o.Metrics)
	return &Follower{events: events, to: to, required: o.Required, log: o.Logger.With("source", "crievents"), metrics: m}, err
}

// Run follows the events until ctx ends, and returns its cause. The only other error, if events
// are required, wraps [pleg.ErrNoEvents].
func (f *Follower) Run(ctx context.Context) error {
	reopen := backoff.Backoff{Min: firstBackoff, Max: lastBackoff}
	for {
		began := time.Now()
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Since(began) > lastBackoff {
			reopen.Reset()
		}
		wait := reopen.Next()
		switch unsupported := errors.Is(err, pleg.ErrNoEvents); {
		case unsupported && f.required:
			return fmt.Errorf("follow the runtime's events: %w", err)
		case unsupported:
			if !f.toldUnsupported {
				f.toldUnsupported = true
				f.log.InfoContext(ctx, "runtime does not support container events", "err", err)
			}
		default:
			f.metrics.breaks.Inc()
			if !f.toldBroken {
				f.toldBroken = true
				f.log.WarnContext(ctx, "event stream broke, will be reopened", "err", err)
			}
		}
		select {
		case <-time.After(wait):
		case <-f.to.Recovered():
			reopen.Reset()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// follow opens one stream and passes on its events until it ends.
func (f *Follower) follow(ctx context.Context) error {
	if f.events == nil {
		return pleg.ErrNoEvents
	}
	opened, heard, ended := make(chan struct{}, 1), make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- f.events.WatchEvents(ctx, func() { f.metrics.opened.Inc(); signal(opened) }, func(h pleg.Hint) {
			f.pass(h)
			signal(heard)
		})
	}()
	var lived <-chan time.Time
	for {
		select {
		case <-opened:
			lived = time.After(upAfter)
			continue
		case err := <-ended:
			return err
		case <-lived:
		case <-heard:
		}
		f.to.StreamUp(true)
		f.toldUnsupported = false
		if f.toldBroken {
			f.toldBroken = false
			f.log.InfoContext(ctx, "event stream works again")
		}
		err := <-ended
		f.to.StreamUp(false)
		return err
	}
}

// signal does not block: one value in the channel is enough.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// pass announces an event and requests a list, unless the event is of a creation: the start
// follows.
func (f *Follower) pass(h pleg.Hint) {
	f.metrics.events.Inc()
	f.to.Announce(h)
	switch {
	case h.UID == "":
		f.metrics.incomplete.Inc()
		f.to.RelistNow()
	case h.State != pleg.StateCreated || h.Removed:
		f.to.RequestRelist(h.UID)
	}
}

type metrics struct {
	events, incomplete, opened, breaks prometheus.Counter
}

func newMetrics(reg instrument.Registry) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		events:     s.Counter("pleg_runtime_events_total", "Container events received from the runtime."),
		incomplete: s.Counter("pleg_incomplete_runtime_events_total", "Container events that name no pod; all pods are listed instead."),
		opened: s.Counter(reg.Name("pleg_event_stream_opened_total", "kubelet_evented_pleg_connection_success_count"),
			"Times the event stream was opened."),
		breaks: s.Counter(reg.Name("pleg_event_stream_breaks_total", "kubelet_evented_pleg_connection_error_count"),
			"Times the event stream broke or could not be opened."),
	}
	return m, s.Register()
}
