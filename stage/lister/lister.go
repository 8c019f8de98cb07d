// Package lister is the first stage: it lists all pods of the runtime, once per
// period. It owns the period and the health. It may change in any version.
package lister

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// Runtime lists all pods. The call ends at a deadline and does not panic.
type Runtime interface {
	ListPods(ctx context.Context) ([]*pleg.Pod, error)
}

// Options configure a [Lister]. The durations must be positive.
type Options struct {
	Runtime Runtime
	// Prober is asked while the next list is far away; nil if there is none.
	Prober pleg.Prober
	Ticks  *stage.Ticks
	// RelistPeriod is the time from the end of one list to the start of the next.
	// A successful list older than RelistThreshold is unhealthy.
	RelistPeriod    time.Duration
	RelistThreshold time.Duration
	// RelistPeriodWithEvents is the period while the event stream is up.
	RelistPeriodWithEvents time.Duration
	// KubeletEvents: the first list after a break is believed, even if it lacks every pod.
	KubeletEvents bool
	Logger        *slog.Logger
	Metrics       instrument.Registry
}

// Lister owns the relist period. Its exported methods are safe for concurrent use
// and do not block.
type Lister struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics

	// running is the time at which the list or the probe in progress began; nil between two. last
	// and running are published by the loop.
	running atomic.Pointer[time.Time]
	last    atomic.Pointer[result]
	// recovered, of capacity 1: a list has succeeded after one that failed.
	recovered chan struct{}
	requests  *mailbox.Box[request]

	schedule schedule
	// callers wait for the next list that begins.
	callers []chan<- error
	// pods is the newest listing. broke is set by a failed list, and by a change of the event stream,
	// until the next listing. doubted is set while broke is, once a list lacked every pod.
	pods           []*pleg.Pod
	broke, doubted bool
}

// request asks the lister for a list, or reports a fact. A request that waits in the mailbox covers later
// equal ones.
type request struct {
	what what
	// caller waits for the list. tick distinguishes changes of the stream: each one counts.
	caller chan<- error
	tick   uint64
}

type what uint8

const (
	listNow what = iota
	listForCaller
	listSoon
	streamUp
	streamDown
)

// New returns a lister that does not run yet.
func New(o Options) (*Lister, error) {
	l := &Lister{
		opts: o, log: o.Logger.With("stage", "lister"),
		recovered: make(chan struct{}, 1), requests: mailbox.New[request](),
		schedule: schedule{period: o.RelistPeriod, pause: min(o.RelistPeriod, maxRequestPause)},
	}
	l.last.Store(&result{})
	var err error
	l.metrics, err = newMetrics(o.Metrics, l)
	return l, err
}

// Relist is RelistNow for a caller that waits: the channel gets the error of the list, or
// nil once the changes of all its pods have ended. It gets nothing if Run ends first.
func (l *Lister) Relist() <-chan error {
	relisted := make(chan error, 1)
	l.requests.Put(request{what: listForCaller, caller: relisted})
	return relisted
}

// RelistNow requests a list at once. If the last requested list ended less than RelistPeriod ago
// (or a second, if that is shorter), the next list begins after that time and serves all requests
// made meanwhile.
func (l *Lister) RelistNow() { l.requests.Put(request{what: listNow}) }

// RelistSoon requests a list within RelistPeriod, even while the longer period
// with events applies.
func (l *Lister) RelistSoon() { l.requests.Put(request{what: listSoon}) }

// StreamUp reports that the event stream is up, or that it has ended. A list follows at once, to
// find changes from before, or whose events were lost.
func (l *Lister) StreamUp(up bool) {
	r := request{what: streamDown, tick: l.opts.Ticks.Next()}
	if up {
		r.what = streamUp
	}
	l.requests.Put(r)
}

// Recovered returns a channel that receives when a list succeeds after a failed list.
func (l *Lister) Recovered() <-chan struct{} { return l.recovered }

// Run lists all pods at once and then a period after each list has ended. It runs
// until ctx ends, returns the cause of ctx and closes out. A failed list is
// counted and retried; it sends nothing.
func (l *Lister) Run(ctx context.Context, out chan<- stage.Listing) error {
	defer close(out)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil { // lists may be due all the time
		l.takeRequests() // the next list covers them
		now := time.Now()
		if begin, again := l.schedule.next(now, l.period()); !begin {
			if len(l.callers) > 0 && !l.schedule.requested { // a list that is due serves them too
				l.schedule.requested = true
				continue
			}
			if l.opts.Prober != nil {
				if due := l.schedule.probe(); !due.After(now) {
					l.probe(ctx)
					continue
				} else if due.Before(again) {
					again = due
				}
			}
			timer.Reset(again.Sub(now))
			select {
			case <-timer.C:
			case <-l.requests.Wake():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		before := l.last.Load().Took
		if listing, ok := l.relist(ctx); ok {
			select {
			case out <- listing:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		l.schedule.listEnded(time.Now())
		if l.doubted || l.last.Load().Took > longList && before <= longList {
			l.schedule.requestSoon(time.Now()) // the runtime may answer differently now, or promptly again
		}
	}
	return context.Cause(ctx)
}

// takeRequests applies the requests in the mailbox.
func (l *Lister) takeRequests() {
	for _, r := range l.requests.Take() {
		switch r.what {
		case listNow:
			l.schedule.requested = true
		case listForCaller:
			l.callers = append(l.callers, r.caller)
		case listSoon:
			l.schedule.requestSoon(time.Now())
		case streamUp, streamDown:
			l.schedule.atOnce, l.broke = true, true
			last := *l.last.Load()
			last.up = r.what == streamUp
			l.last.Store(&last)
		}
	}
}

// longList is the duration above which a list counts as delayed by the runtime.
const longList = 3 * time.Second

// probe asks whether the runtime answers. If it does not, that counts as a failed list, and the
// next list is due at once.
func (l *Lister) probe(ctx context.Context) {
	start := time.Now()
	l.running.Store(&start)
	err := l.opts.Prober.Probe(ctx)
	l.running.Store(nil)
	l.schedule.answered = time.Now()
	if err != nil && ctx.Err() == nil {
		l.fail(ctx, start, err)
		l.schedule.atOnce = true
	}
}

// fail notes that a list or a probe failed.
func (l *Lister) fail(ctx context.Context, start time.Time, err error) {
	l.metrics.errors.Inc()
	last := *l.last.Load()
	if last.Err == nil {
		l.log.WarnContext(ctx, "relist failed, will be retried", "err", err)
		last.Failing = start
	}
	last.Failures++
	l.broke = true
	last.Err, last.FailedAfter = err, time.Since(start)
	l.last.Store(&last)
}

// period is the time to the next list. The period with events applies only while
// lists work too.
func (l *Lister) period() time.Duration {
	if last := l.last.Load(); last.up && last.Err == nil {
		return max(l.opts.RelistPeriod, l.opts.RelistPeriodWithEvents)
	}
	return l.opts.RelistPeriod
}

// doubts reports whether a list is not to be believed yet: it is the first one after a break, and
// lacks every pod. A runtime that starts may answer with nothing for seconds.
func (l *Lister) doubts(pods []*pleg.Pod) bool {
	known := func(pod *pleg.Pod) bool {
		return slices.ContainsFunc(l.pods, func(was *pleg.Pod) bool { return was.UID == pod.UID })
	}
	l.doubted = l.broke && !l.doubted && !l.opts.KubeletEvents && len(l.pods) > 0 && !slices.ContainsFunc(pods, known)
	if !l.doubted {
		l.pods, l.broke = pods, false
	}
	return l.doubted
}

func (l *Lister) relist(ctx context.Context) (stage.Listing, bool) {
	last, start, began := l.last.Load(), time.Now(), l.opts.Ticks.Next()
	if !last.Success.IsZero() {
		l.metrics.interval.Observe(start.Sub(last.Success).Seconds())
	}
	callers := l.callers
	l.callers = nil
	l.running.Store(&start)
	pods, err := l.opts.Runtime.ListPods(ctx)
	l.running.Store(nil)
	l.metrics.duration.Observe(time.Since(start).Seconds())
	if ctx.Err() != nil {
		return stage.Listing{}, false
	}
	if err != nil {
		l.fail(ctx, start, err)
		for _, caller := range callers {
			caller <- err
		}
		return stage.Listing{}, false
	}
	if last.Err != nil {
		l.log.InfoContext(ctx, "relist succeeded again", "pods", len(pods), "after", start.Sub(last.Failing).Round(time.Millisecond), "failures", last.Failures)
		select {
		case l.recovered <- struct{}{}:
		default: // one waits already
		}
	}
	l.last.Store(&result{pleg.RelistStatus{Success: start, Took: time.Since(start)}, began, last.up})
	if l.doubts(pods) {
		l.log.InfoContext(ctx, "relist lacks every pod, will be confirmed", "pods", len(l.pods))
		l.callers = callers
		return stage.Listing{}, false
	}
	l.metrics.listed(pods)
	l.metrics.lastSeen.Set(float64(start.UnixNano()) / float64(time.Second))
	asked := stage.Asked{Began: began, Answered: l.opts.Ticks.Next(), At: start}
	return stage.Listing{Asked: asked, Pods: pods, StreamUp: last.up, Relisted: callers}, true
}
