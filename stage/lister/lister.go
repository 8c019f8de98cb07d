// Package lister is the first stage: it asks the runtime what exists.
package lister

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/panics"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// Runtime is the part of [pleg.Runtime] that the lister needs.
type Runtime interface {
	ListPods(ctx context.Context) ([]*pleg.Pod, error)
}

// Options configure a [Lister]. The durations must be positive.
type Options struct {
	Runtime Runtime
	// RelistPeriod is the time from the end of one list to the next.
	RelistPeriod time.Duration
	// ListTimeout ends a list that takes longer.
	ListTimeout time.Duration
	Logger      *slog.Logger
	Metrics     instrument.Registry
}

// Lister owns the relist period. Its methods are safe for concurrent use; what
// they read is published by the loop.
type Lister struct {
	runtime Runtime
	period  time.Duration
	timeout time.Duration
	log     *slog.Logger
	metrics *metrics

	// running is when the list under way began; nil between two lists.
	running atomic.Pointer[time.Time]
	last    atomic.Pointer[Relist]
}

// Relist is what is known of the relists so far.
type Relist struct {
	// Success is when the newest successful list began; zero before the first.
	Success time.Time
	// Err is the error of the list after it; nil if there is none.
	Err error
}

// New returns a lister that is yet to run.
func New(o Options) (*Lister, error) {
	l := &Lister{runtime: o.Runtime, period: o.RelistPeriod, timeout: o.ListTimeout, log: o.Logger.With("stage", "lister")}
	l.last.Store(&Relist{})
	var err error
	l.metrics, err = newMetrics(o.Metrics, l.age)
	return l, err
}

// Last returns what is known of the relists so far.
func (l *Lister) Last() Relist { return *l.last.Load() }

// Run relists at once and then a period after each list has ended, until ctx
// ends; it returns the cause of ctx and closes out. A failed list is logged,
// counted and tried again a period later: it sends nothing.
func (l *Lister) Run(ctx context.Context, out chan<- stage.Listing) error {
	defer close(out)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if listing, ok := l.relist(ctx); ok {
			select {
			case out <- listing:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		timer.Reset(l.period)
	}
}

func (l *Lister) relist(ctx context.Context) (stage.Listing, bool) {
	last := l.Last()
	start := time.Now()
	if !last.Success.IsZero() {
		l.metrics.interval.Observe(start.Sub(last.Success).Seconds())
	}
	l.running.Store(&start)
	pods, err := l.list(ctx)
	l.running.Store(nil)
	l.metrics.duration.Observe(time.Since(start).Seconds())
	if ctx.Err() != nil {
		return stage.Listing{}, false
	}
	if err != nil {
		l.metrics.errors.Inc()
		l.log.WarnContext(ctx, "relist failed, will be retried", "err", err)
		l.last.Store(&Relist{Success: last.Success, Err: err})
		return stage.Listing{}, false
	}
	if last.Err != nil {
		l.log.InfoContext(ctx, "relist works again", "pods", len(pods))
	}
	l.last.Store(&Relist{Success: start})
	l.metrics.lastSeen.Set(float64(start.UnixNano()) / float64(time.Second))
	return stage.Listing{At: start, Pods: l.wellFormed(ctx, pods)}, true
}

func (l *Lister) list(ctx context.Context) (pods []*pleg.Pod, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.timeout, fmt.Errorf("no answer within the list timeout of %v", l.timeout))
	defer cancel()
	// The runtime may be the embedder's: its panic costs this relist only.
	if caught := panics.Try(func() { pods, err = l.runtime.ListPods(ctx) }); caught != nil {
		l.log.ErrorContext(ctx, "the runtime panicked in ListPods", "err", caught.AsError())
		return nil, fmt.Errorf("list pods: panic: %v", caught.Value)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return pods, nil
}

// age returns how long the list under way has been running, in seconds.
func (l *Lister) age() float64 {
	start := l.running.Load()
	if start == nil {
		return 0
	}
	return time.Since(*start).Seconds()
}
