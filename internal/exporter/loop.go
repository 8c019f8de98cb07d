// Package exporter sends all events of a node elsewhere: it follows the events, in
// this process or through the daemon, and begins again with backoff after an error.
package exporter

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
)

// Loop runs the sessions of an exporter, one after the other. [Loop.Status] is safe for concurrent
// use; the goroutine of Run owns everything else.
type Loop struct {
	// Log logs Failed with an error, unless the attempt before failed with the same, and Recovered
	// once the receiver accepts something again.
	Log               *slog.Logger
	Failed, Recovered string
	// Backoff is the time between two sessions.
	Backoff backoff.Backoff
	// Count is called with the error of each session, and returns the shortest time until the next
	// session.
	Count func(error) time.Duration
	// Wait waits between two sessions. If nil, [backoff.Wait].
	Wait func(context.Context, time.Duration) error
	// Ended is called as Run returns, unless it had run before.
	Ended func()

	running atomic.Bool
	lastAck atomic.Pointer[time.Time]
	failure atomic.Pointer[error]
	logged  string
}

var errHasRun = errors.New("it has already run, which it does only once: create a new one")

// Run runs sessions until ctx or the source ends, and then returns nil. It runs once; a second
// call is an error.
func (l *Loop) Run(ctx context.Context, session func(context.Context) error) error {
	if l.running.Swap(true) {
		return errHasRun
	}
	defer l.Ended()
	for {
		err := session(ctx)
		if ctx.Err() != nil || errors.Is(err, ErrSourceEnded) || l.Pause(ctx, err, l.Count(err)) != nil {
			return nil
		}
	}
}

// Pause logs an error and waits with backoff, but at least as long as given.
func (l *Loop) Pause(ctx context.Context, err error, atLeast time.Duration) error {
	l.failure.Store(&err)
	retryIn := max(l.Backoff.Next(), atLeast)
	if text := err.Error(); text != l.logged {
		l.logged = text
		l.Log.WarnContext(ctx, l.Failed, "err", err, "retryIn", retryIn) //nolint:sloglint // a constant of each exporter
	}
	if l.Wait != nil {
		return l.Wait(ctx, retryIn)
	}
	return backoff.Wait(ctx, retryIn)
}

// Works is called when the receiver has accepted something.
func (l *Loop) Works(ctx context.Context) {
	if l.logged != "" {
		l.Log.InfoContext(ctx, l.Recovered) //nolint:sloglint // the same
	}
	l.logged = ""
	l.failure.Store(nil)
	l.Backoff.Reset()
}

// Acknowledged notes that the receiver has answered.
func (l *Loop) Acknowledged() {
	now := time.Now()
	l.lastAck.Store(&now)
}

// Status returns the time at which the receiver answered last, and the error of the last pause; nil
// while the receiver accepts events.
func (l *Loop) Status() (lastAck time.Time, err error) {
	if failure := l.failure.Load(); failure != nil {
		err = *failure
	}
	return *l.lastAck.Load(), err
}
