// Package hinter turns hints, which are requests for a relist of one pod and
// the events of the runtime, into observations of single pods.
//
// A hint is never a second source of truth: what it yields passes through the
// same differ as the listings. The kubelet's Evented PLEG wrote the pod cache
// from two places and lost that race for years (kubernetes#139262).
package hinter

import (
	"context"
	"log/slog"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// maxQueued bounds the observations that wait for the differ, and the pods that
// wait for a relist. Beyond it one relist of all pods is cheaper.
const maxQueued = 4096

// floodQuiet is for how long no hint may have given way to a list before that is
// logged again.
const floodQuiet = time.Minute

// tick is how much newer than its arrival an event may be: two of one moment
// of a clock that stands still between them differ only by that.
const tick = time.Microsecond

// Lister is the stage that lists all pods.
type Lister interface {
	// Relist asks for a list of all pods at once; it does not block.
	Relist()
	// SetStream tells whether the stream of events is up; it does not block.
	SetStream(up bool)
	// Listed returns when the newest successful list of all pods began.
	Listed() time.Time
}

// Options configure a [Hinter].
type Options struct {
	// Pods lists one pod. If nil, a list of all pods takes its place.
	Pods pleg.PodLister
	// Events is the stream to follow. If nil, there is none.
	Events pleg.EventWatcher
	// Required makes a runtime without events an error that ends Run.
	Required bool
	Lister   Lister
	// Relists is the number of pods relisted at once; at least 1.
	Relists int
	// ListTimeout ends a list that takes longer; positive.
	ListTimeout time.Duration
	Logger      *slog.Logger
	Metrics     instrument.Registry
}

// Hinter owns the hints that wait.
type Hinter struct {
	opts     Options
	log      *slog.Logger
	metrics  *metrics
	requests *mailbox.Box[pleg.PodUID]

	// queue waits for the differ, due for a relist of the pod.
	queue []stage.Observation
	due   []pleg.PodUID
	// asked is when a relist that has not begun was asked for last; busy are
	// the pods being relisted.
	asked map[pleg.PodUID]time.Time
	busy  map[pleg.PodUID]struct{}
	// flooded is when a hint last gave way to a list.
	flooded time.Time
	// proven ends the time for which a new stream must live to count as up.
	proven *time.Timer
}

// New returns a hinter that is yet to run.
func New(o Options) (*Hinter, error) {
	h := &Hinter{
		opts:     o,
		log:      o.Logger.With("stage", "hinter"),
		requests: mailbox.New[pleg.PodUID](),
		asked:    make(map[pleg.PodUID]time.Time),
		busy:     make(map[pleg.PodUID]struct{}),
	}
	var err error
	h.metrics, err = newMetrics(o.Metrics)
	return h, err
}

// RequestRelist has one pod listed, and inspected if it changed, without
// waiting for the next relist (kubelet v1.36, PLEG.RequestRelist). Requests for
// the same pod that wait are served by one list. It never blocks and is safe
// for concurrent use.
func (h *Hinter) RequestRelist(uid pleg.PodUID) { h.requests.Put(uid) }

// Run serves requests and follows the stream of events until ctx ends; it
// returns the cause of ctx and closes out. The only other error is that of a
// runtime without events if they are required.
func (h *Hinter) Run(ctx context.Context, out chan<- stage.Observation) error {
	ctx, stop := context.WithCancelCause(ctx)
	workers := pool.New()
	defer func() {
		stop(nil)
		workers.Wait()
		close(out)
	}()
	signals := make(chan signal)
	if h.opts.Events != nil {
		workers.Go(func() { h.follow(ctx, signals) })
	}
	relisted := make(chan stage.Observation)
	h.proven = time.NewTimer(0)
	h.proven.Stop()
	for {
		for len(h.due) > 0 && len(h.busy) < h.opts.Relists {
			h.relist(ctx, workers, relisted)
		}
		send, next := h.offer(out)
		select {
		case s := <-signals:
			if err := h.heed(s); err != nil {
				return err
			}
		case <-h.proven.C:
			h.setStream(true)
		case <-h.requests.Wake():
			for _, uid := range h.requests.Take() {
				h.metrics.requests.Inc()
				h.ask(uid)
			}
		case o := <-relisted:
			h.listed(o)
		case send <- next:
			h.queue = h.queue[1:]
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// heed takes what the follower tells.
func (h *Hinter) heed(s signal) error {
	switch {
	case s.hint != nil:
		h.take(s.hint)
	case s.opened:
		h.metrics.opened.Inc()
		h.proven.Reset(provenAfter)
	default:
		h.proven.Stop()
		h.setStream(false)
	}
	return s.fatal
}

func (h *Hinter) setStream(up bool) {
	h.opts.Lister.SetStream(up)
	if up {
		h.metrics.up.Set(1)
	} else {
		h.metrics.up.Set(0)
	}
}

func (h *Hinter) offer(out chan<- stage.Observation) (chan<- stage.Observation, stage.Observation) {
	if len(h.queue) == 0 {
		h.queue = nil
		return nil, stage.Observation{}
	}
	return out, h.queue[0]
}

// take queues what an event says if it says it all, and has the pod relisted if
// it does not.
func (h *Hinter) take(hint *pleg.Hint) {
	h.metrics.events.Inc()
	now := time.Now()
	switch {
	case hint.UID == "":
		h.metrics.incomplete.Inc()
		h.giveWay("an event names no pod")
		h.opts.Lister.Relist()
	case !complete(hint), hint.At.IsZero(), hint.At.After(now.Add(time.Second)):
		h.metrics.incomplete.Inc()
		// The announcement counts all the same.
		h.push(stage.Observation{UID: hint.UID, Hint: &pleg.Hint{
			UID: hint.UID, Container: hint.Container, Sandbox: hint.Sandbox, State: hint.State, Removed: hint.Removed,
		}})
		h.ask(hint.UID)
	default:
		// From here on the time is told by the clock that is never set back,
		// and no event is newer than its arrival: a listing must be able to
		// follow it.
		at := now
		if ahead := hint.At.Sub(now); ahead < tick {
			at = now.Add(ahead)
		}
		h.push(stage.Observation{UID: hint.UID, At: at, Hint: hint})
	}
}

func (h *Hinter) push(o stage.Observation) {
	if len(h.queue) < maxQueued {
		h.queue = append(h.queue, o)
		return
	}
	h.metrics.overflow.Inc()
	h.giveWay("too many observations wait")
	h.ask(o.UID)
}

// giveWay notes that a list does in place of a hint, and logs it once for a
// flood of them.
func (h *Hinter) giveWay(why string) {
	now := time.Now()
	if h.flooded.IsZero() || now.Sub(h.flooded) > floodQuiet {
		h.log.Warn("hints cannot be followed one by one, relisting instead", "why", why)
	}
	h.flooded = now
}

// ask notes that a pod is to be relisted.
func (h *Hinter) ask(uid pleg.PodUID) {
	if h.opts.Pods == nil {
		h.opts.Lister.Relist()
		return
	}
	if len(h.due) >= maxQueued {
		h.giveWay("too many pods wait for a relist")
		h.opts.Lister.Relist()
		return
	}
	_, waits := h.asked[uid]
	_, busy := h.busy[uid]
	h.asked[uid] = time.Now()
	if !waits && !busy {
		h.due = append(h.due, uid)
	}
}

// relist has a worker list the next pod that is due, unless a list of all pods
// that began after it was asked for has it.
func (h *Hinter) relist(ctx context.Context, workers *pool.Pool, relisted chan<- stage.Observation) {
	uid := h.due[0]
	h.due = h.due[1:]
	asked := h.asked[uid]
	delete(h.asked, uid)
	if h.opts.Lister.Listed().After(asked) {
		return
	}
	h.busy[uid] = struct{}{}
	workers.Go(func() {
		select {
		case relisted <- h.list(ctx, uid):
		case <-ctx.Done():
		}
	})
}

// listed takes what a worker found. A pod that was asked for again meanwhile is
// due again: what was found may be too old.
func (h *Hinter) listed(o stage.Observation) {
	delete(h.busy, o.UID)
	if _, again := h.asked[o.UID]; again {
		h.due = append(h.due, o.UID)
	}
	if !o.At.IsZero() {
		h.push(o)
	}
}
