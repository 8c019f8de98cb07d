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

const (
	// oversleptAfter is by how much a timer is late only if this process was
	// stopped or starved.
	oversleptAfter = 20 * time.Millisecond
	// catchUp is the time for the events that waited meanwhile.
	catchUp = 2 * time.Second
)

// Runtime is the part of [pleg.Runtime] that the lister needs.
type Runtime interface {
	ListPods(ctx context.Context) ([]*pleg.Pod, error)
}

// Options configure a [Lister]. The durations must be positive.
type Options struct {
	Runtime Runtime
	// RelistPeriod is the time from the end of one list to the next, and
	// RelistThreshold the age of the last successful one that is unhealthy.
	RelistPeriod    time.Duration
	RelistThreshold time.Duration
	// RetryPeriod is the time to the next list after one that found no runtime
	// to ask ([pleg.ErrUnavailable]), if it is shorter than RelistPeriod.
	RetryPeriod time.Duration
	// RelistPeriodWithEvents and RelistThresholdWithEvents stand in for them
	// while a stream of events is up and not doubted.
	RelistPeriodWithEvents    time.Duration
	RelistThresholdWithEvents time.Duration
	// ListTimeout ends a list that takes longer.
	ListTimeout time.Duration
	Logger      *slog.Logger
	Metrics     instrument.Registry
}

// Lister owns the relist period. Its methods are safe for concurrent use; what
// they read is published by the loop.
type Lister struct {
	runtime Runtime
	opts    Options
	log     *slog.Logger
	metrics *metrics

	// running is when the list under way began; nil between two lists.
	running atomic.Pointer[time.Time]
	last    atomic.Pointer[Relist]
	stream  atomic.Pointer[stream]
	// doubt is since when the stream is not relied on although it is up; nil if
	// it is.
	doubt  atomic.Pointer[time.Time]
	wake   chan struct{} // of capacity 1: relist at once
	sooner chan struct{} // of capacity 1: relist after the short period

	// listedWith is the stream at the last successful list.
	listedWith *stream
	// warned is when a failed list was logged last.
	warned time.Time
}

// Relist is what is known of the relists so far.
type Relist struct {
	// Success is when the newest successful list began; zero before the first.
	Success time.Time
	// Err is the error of the list after it; nil if there is none.
	Err error
}

// stream is the state of the stream of events since a moment.
type stream struct {
	up    bool
	since time.Time
}

// New returns a lister that is yet to run.
func New(o Options) (*Lister, error) {
	l := &Lister{runtime: o.Runtime, opts: o, log: o.Logger.With("stage", "lister"), wake: make(chan struct{}, 1), sooner: make(chan struct{}, 1)}
	l.last.Store(&Relist{})
	l.stream.Store(&stream{})
	l.listedWith = l.stream.Load()
	var err error
	l.metrics, err = newMetrics(o.Metrics, l.age)
	return l, err
}

// Listed returns when the newest successful list began; zero before the first.
func (l *Lister) Listed() time.Time { return l.Last().Success }

// Last returns what is known of the relists so far.
func (l *Lister) Last() Relist { return *l.last.Load() }

// Relist asks for a list at once rather than at the end of the period. It never
// blocks; requests made during a list are served by one list after it.
func (l *Lister) Relist() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Retry asks for a list after the short period, should the long one hold. It
// never blocks.
func (l *Lister) Retry() {
	select {
	case l.sooner <- struct{}{}:
	default:
	}
}

// SetStream tells whether a stream of events is up. Either way a list is due at
// once: of what happened before the stream was up, or of what it may have lost.
func (l *Lister) SetStream(up bool) {
	if l.stream.Load().up == up {
		return
	}
	l.stream.Store(&stream{up: up, since: time.Now()})
	l.Relist()
}

// SetDoubt tells whether a stream of events that is up is not to be relied on.
// Then what holds without events holds, and a list is due within the short
// period. It does not block.
func (l *Lister) SetDoubt(doubted bool) {
	switch {
	case !doubted:
		l.doubt.Store(nil)
	case l.doubt.Load() == nil:
		now := time.Now()
		l.doubt.Store(&now)
		l.Retry()
	}
}

// relied reports whether a stream of events stands in for lists, and since when
// that is so.
func (l *Lister) relied() (relied bool, since time.Time) {
	stream, doubt := l.stream.Load(), l.doubt.Load()
	if doubt != nil && doubt.After(stream.since) {
		return false, *doubt
	}
	return stream.up && doubt == nil, stream.since
}

// Healthy reports whether the last successful list is younger than the
// threshold, and if not, why. The threshold that holds without events begins to
// count when the stream breaks or is doubted, not before; the one that held with
// them goes on.
func (l *Lister) Healthy() (bool, error) {
	last := l.Last()
	relied, since := l.relied()
	if last.Success.IsZero() {
		return false, because("pleg has yet to be successful", last.Err)
	}
	threshold, seen := l.opts.RelistThreshold, last.Success
	switch {
	case relied:
		threshold = l.opts.RelistThresholdWithEvents
	case since.After(seen) && time.Since(seen) <= l.opts.RelistThresholdWithEvents:
		seen = since
	}
	if elapsed := time.Since(seen); elapsed > threshold {
		return false, because(fmt.Sprintf("pleg was last seen active %v ago; threshold is %v", time.Since(last.Success), threshold), last.Err)
	}
	return true, nil
}

func because(what string, err error) error {
	if err == nil {
		return errors.New(what)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Run relists at once and then a period after each list has ended, until ctx
// ends; it returns the cause of ctx and closes out. A failed list is logged,
// counted and tried again a period later, or sooner if there was no runtime to
// ask: it sends nothing.
func (l *Lister) Run(ctx context.Context, out chan<- stage.Listing) error {
	defer close(out)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var due time.Time
	waited := false
	for {
		select {
		case <-timer.C:
			if !waited && l.overslept(due) {
				waited = true
				timer.Reset(catchUp)
				continue
			}
		case <-l.wake:
		case <-l.sooner:
			// Never later than it is due: there may be no end of retries.
			if soon := time.Now().Add(l.opts.RelistPeriod); soon.Before(due) {
				due = soon
				timer.Reset(l.opts.RelistPeriod)
			}
			continue
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
		waited = false
		due = time.Now().Add(l.period())
		timer.Reset(time.Until(due))
	}
}

// overslept reports whether this process did not run when a list became due, and
// events of that time wait to be read. A list before them would show how things
// stand, and what was over by then would never be told.
func (l *Lister) overslept(due time.Time) bool {
	return l.stream.Load().up && time.Since(due) > oversleptAfter
}

// period is the time to the next list. The long one holds only while both the
// stream and the lists work. A runtime that is away is looked for more often: it
// is to be known again soon after its return.
func (l *Lister) period() time.Duration {
	relied, _ := l.relied()
	switch err := l.Last().Err; {
	case errors.Is(err, pleg.ErrUnavailable):
		return min(l.opts.RetryPeriod, l.opts.RelistPeriod)
	case relied && err == nil:
		return l.opts.RelistPeriodWithEvents
	}
	return l.opts.RelistPeriod
}

func (l *Lister) relist(ctx context.Context) (stage.Listing, bool) {
	last, stream := l.Last(), l.stream.Load()
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
		l.warn(ctx, err)
		l.last.Store(&Relist{Success: last.Success, Err: err})
		return stage.Listing{}, false
	}
	if last.Err != nil {
		l.log.InfoContext(ctx, "relist works again", "pods", len(pods))
	}
	l.last.Store(&Relist{Success: start})
	l.metrics.lastSeen.Set(float64(start.UnixNano()) / float64(time.Second))
	listing := stage.Listing{
		At: start, Pods: l.wellFormed(ctx, pods), Announced: l.listedWith.up, Broken: stream != l.listedWith,
	}
	l.listedWith = stream
	return listing, true
}

// warn logs that a list has failed, but of the many that find the runtime away
// no more than one in each period.
func (l *Lister) warn(ctx context.Context, err error) {
	now := time.Now()
	again := errors.Is(err, pleg.ErrUnavailable) && errors.Is(l.Last().Err, pleg.ErrUnavailable)
	if again && now.Sub(l.warned) < l.opts.RelistPeriod {
		return
	}
	l.warned = now
	l.log.WarnContext(ctx, "relist failed, will be retried", "err", err)
}

func (l *Lister) list(ctx context.Context) (pods []*pleg.Pod, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.opts.ListTimeout, fmt.Errorf("no answer within the list timeout of %v", l.opts.ListTimeout))
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
