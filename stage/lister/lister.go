// Package lister is the first stage: it lists all pods of the runtime, once per
// period. It owns the period and the health, and so the question whether CRI
// events may stand in for lists (trust.go). It has no stability promise.
package lister

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// Runtime lists all pods. The call has a deadline and does not panic.
type Runtime interface {
	ListPods(ctx context.Context) ([]*pleg.Pod, error)
}

// Options configure a [Lister]. The durations must be positive.
type Options struct {
	Runtime Runtime
	// RelistPeriod is the time from the end of one list to the start of the next.
	// A successful list older than RelistThreshold is unhealthy.
	RelistPeriod    time.Duration
	RelistThreshold time.Duration
	// RelistPeriodWithEvents is the period while CRI events stand in for lists.
	RelistPeriodWithEvents time.Duration
	Logger                 *slog.Logger
	Metrics                instrument.Registry
}

// Lister owns the relist period. Its exported methods are safe for concurrent use
// and do not block.
type Lister struct {
	runtime Runtime
	opts    Options
	log     *slog.Logger
	metrics *metrics

	// running is when the list in progress began; nil between two lists. last and
	// running are published by the loop.
	running atomic.Pointer[time.Time]
	last    atomic.Pointer[Relist]
	trust   trust
	// Capacity 1: a request that waits covers those after it.
	relistNow    chan struct{}
	relistSoon   chan struct{}
	trustChanged chan struct{}
	// callers wait for the next list that begins.
	callers *mailbox.Box[chan<- error]

	schedule schedule
	// previous is what was known of the stream when the last successful list began.
	previous evidence
}

// New returns a lister that does not run yet.
func New(o Options) (*Lister, error) {
	l := &Lister{
		runtime: o.Runtime, opts: o, log: o.Logger.With("stage", "lister"),
		relistNow: make(chan struct{}, 1), relistSoon: make(chan struct{}, 1), trustChanged: make(chan struct{}, 1),
		callers:  mailbox.New[chan<- error](),
		schedule: schedule{period: o.RelistPeriod, pause: min(o.RelistPeriod, maxRequestPause)},
	}
	l.last.Store(&Relist{})
	l.trust.evidence.Store(&evidence{})
	var err error
	l.metrics, err = newMetrics(o.Metrics, l)
	return l, err
}

// Relist is RelistNow for a caller that waits: the channel gets the error of the list, or
// nil once the changes of all its pods have ended. It gets nothing if Run ends first.
func (l *Lister) Relist() <-chan error {
	relisted := make(chan error, 1)
	l.callers.Put(relisted)
	return relisted
}

// RelistNow requests a list at once. If the last requested list ended less than
// RelistPeriod ago (or a second, if that is shorter), the next one begins after that
// time and serves all requests made meanwhile.
func (l *Lister) RelistNow() { poke(l.relistNow) }

// RelistSoon requests a list within RelistPeriod, even while the longer period
// with events applies.
func (l *Lister) RelistSoon() { poke(l.relistSoon) }

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// StreamOpened reports that the event stream was opened. Once the stream counts
// as up, a list follows at once, for what happened before.
func (l *Lister) StreamOpened() {
	l.trust.opened()
	poke(l.trustChanged)
}

// StreamEnded reports that the event stream has ended or could not be opened. If
// it was up, a list follows at once, for what it may have lost.
func (l *Lister) StreamEnded() {
	l.trust.ended()
	poke(l.trustChanged)
}

// ChangesUnannounced reports n changes that the event stream failed to announce
// while it was up. Lists take over again.
func (l *Lister) ChangesUnannounced(n int) {
	if l.trust.missed() {
		l.log.Warn("event stream is missing changes; falling back to polling", "missed", n, "quietTime", quietTime)
		l.RelistSoon()
	}
}

// ChangesAnnounced reports a relist while the stream was up that found nothing
// unannounced since the one before, and whether it confirmed a change that an event
// announced.
func (l *Lister) ChangesAnnounced(confirmed bool) {
	if l.trust.confirmed(confirmed) {
		l.log.Info("event stream announces all changes again")
	}
	poke(l.trustChanged)
}

// Run lists all pods at once and then a period after each list has ended. It runs
// until ctx ends, returns the cause of ctx and closes out. A failed list is
// logged, counted and retried; it sends nothing.
func (l *Lister) Run(ctx context.Context, out chan<- stage.Listing) error {
	defer close(out)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil { // lists may be due all the time
		now := time.Now()
		stream := l.trust.at(now)
		begin, again := l.schedule.next(now, stream, l.period(stream))
		if !begin {
			timer.Reset(again.Sub(now))
			select {
			case <-timer.C:
			case <-l.trustChanged:
			case <-l.relistNow:
				l.schedule.requested = true
			case <-l.relistSoon:
				l.schedule.requestSoon(time.Now())
			case <-l.callers.Wake():
				l.schedule.requested = true
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		select {
		case <-l.relistNow: // the list covers it
			l.schedule.requested = true
		default:
		}
		if listing, ok := l.relist(ctx, stream); ok {
			select {
			case out <- listing:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		l.schedule.listEnded(time.Now(), stream)
	}
	return context.Cause(ctx)
}

// period is the time to the next list. The period with events applies only while
// lists work too.
func (l *Lister) period(stream evidence) time.Duration {
	if stream.standsIn() && l.Last().Err == nil {
		return max(l.opts.RelistPeriod, l.opts.RelistPeriodWithEvents)
	}
	return l.opts.RelistPeriod
}

func (l *Lister) relist(ctx context.Context, stream evidence) (stage.Listing, bool) {
	last, start := l.Last(), time.Now()
	if !last.Success.IsZero() {
		l.metrics.interval.Observe(start.Sub(last.Success).Seconds())
	}
	callers := l.callers.Take()
	l.running.Store(&start)
	pods, err := l.runtime.ListPods(ctx)
	l.running.Store(nil)
	l.metrics.duration.Observe(time.Since(start).Seconds())
	if ctx.Err() != nil {
		return stage.Listing{}, false
	}
	if err != nil {
		l.metrics.errors.Inc()
		l.log.WarnContext(ctx, "relist failed, will be retried", "err", err)
		l.last.Store(last.failed(start, err))
		for _, caller := range callers {
			caller <- err
		}
		return stage.Listing{}, false
	}
	if last.Err != nil {
		l.log.InfoContext(ctx, "relist succeeded again", "pods", len(pods))
	}
	l.last.Store(&Relist{Success: start, Took: time.Since(start), Pods: len(pods)})
	l.metrics.lastSeen.Set(float64(start.UnixNano()) / float64(time.Second))
	listing := stage.Listing{
		At: start, Answered: time.Now(), Pods: pods, StreamUp: l.previous.up, StreamBroke: !stream.sameStream(l.previous), Relisted: callers,
	}
	l.previous = stream
	return listing, true
}
