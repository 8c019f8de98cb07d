// Package hinter turns hints into observations of single pods. A hint is a
// request for a relist of one pod, or a CRI event. The package has no stability promise.
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

// tick is how far ahead of its arrival an event may be dated: two events of one
// reading of the clock differ only by that.
const tick = time.Microsecond

// Lister is the stage that lists all pods. Its methods do not block.
type Lister interface {
	// RelistNow requests a list of all pods at once.
	RelistNow()
	// RelistSoon requests one within the relist period.
	RelistSoon()
	// StreamOpened and StreamEnded report the state of the event stream.
	StreamOpened()
	StreamEnded()
	// LastSuccess returns when the newest successful list of all pods began.
	LastSuccess() time.Time
}

// Options configure a [Hinter].
type Options struct {
	// Pods lists one pod. If nil, all pods are listed instead.
	Pods pleg.PodLister
	// Events opens the event stream. If nil, there is none.
	Events pleg.EventWatcher
	// Required makes a runtime without events an error that ends Run.
	Required bool
	Lister   Lister
	// Relists is the number of pods relisted at once; at least 1.
	Relists int
	Logger  *slog.Logger
	Metrics instrument.Registry
}

// Hinter owns the hints that wait.
type Hinter struct {
	opts     Options
	log      *slog.Logger
	metrics  *metrics
	requests *mailbox.Box[pleg.PodUID]

	// queue holds observations that wait for the differ, due holds pods that wait
	// for a relist.
	queue []stage.Observation
	due   []pleg.PodUID
	// requested is when the relist of a waiting pod was last requested; busy are
	// the pods being relisted.
	requested map[pleg.PodUID]time.Time
	busy      map[pleg.PodUID]struct{}
}

// New returns a hinter that does not run yet.
func New(o Options) (*Hinter, error) {
	h := &Hinter{
		opts:      o,
		log:       o.Logger.With("stage", "hinter"),
		requests:  mailbox.New[pleg.PodUID](),
		requested: make(map[pleg.PodUID]time.Time),
		busy:      make(map[pleg.PodUID]struct{}),
	}
	var err error
	h.metrics, err = newMetrics(o.Metrics)
	return h, err
}

// RequestRelist requests a list of one pod, and an inspection if it changed, without
// waiting for the next relist (kubelet v1.37, PLEG.RequestRelist). Requests for
// the same pod that wait are served by one list. It never blocks and is safe
// for concurrent use.
func (h *Hinter) RequestRelist(uid pleg.PodUID) { h.requests.Put(uid) }

// Run serves requests and follows the event stream until ctx ends; it returns the
// cause of ctx and closes out. The only other error is that of a runtime without
// events if they are required.
func (h *Hinter) Run(ctx context.Context, out chan<- stage.Observation) error {
	ctx, stop := context.WithCancelCause(ctx)
	workers := pool.New()
	defer func() {
		stop(nil)
		workers.Wait()
		close(out)
	}()
	updates := make(chan streamUpdate)
	if h.opts.Events != nil {
		workers.Go(func() { h.followStream(ctx, updates) })
	}
	relisted := make(chan stage.Observation)
	for {
		// There is room for what each list yields, or its pod would be listed again at once.
		for len(h.due) > 0 && len(h.busy) < h.opts.Relists && len(h.queue)+len(h.busy) < maxQueued {
			h.startRelist(ctx, workers, relisted)
		}
		send, next := h.offer(out)
		select {
		case u := <-updates:
			if err := h.applyUpdate(u); err != nil {
				return err
			}
		case <-h.requests.Wake():
			for _, uid := range h.requests.Take() {
				h.metrics.requests.Inc()
				h.enqueueRelist(uid)
			}
		case o := <-relisted:
			h.finishRelist(o)
		case send <- next:
			h.queue = h.queue[1:]
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (h *Hinter) applyUpdate(u streamUpdate) error {
	switch {
	case u.hint != nil:
		h.applyHint(u.hint)
	case u.opened:
		h.metrics.opened.Inc()
		h.opts.Lister.StreamOpened()
	default:
		h.opts.Lister.StreamEnded()
	}
	return u.fatal
}

func (h *Hinter) offer(out chan<- stage.Observation) (chan<- stage.Observation, stage.Observation) {
	if len(h.queue) == 0 {
		h.queue = nil
		return nil, stage.Observation{}
	}
	return out, h.queue[0]
}

// applyHint queues the hint itself if it carries the whole pod; otherwise the pod
// is relisted.
func (h *Hinter) applyHint(hint *pleg.Hint) {
	h.metrics.events.Inc()
	now := time.Now()
	switch {
	case hint.UID == "":
		h.metrics.incomplete.Inc()
		h.opts.Lister.RelistNow()
	case hint.Pod == nil, hint.At.IsZero(), hint.At.After(now.Add(time.Second)):
		h.metrics.incomplete.Inc()
		// The announcement counts all the same.
		h.enqueue(stage.Observation{UID: hint.UID, Answered: now, Hint: &pleg.Hint{
			UID: hint.UID, Container: hint.Container, Sandbox: hint.Sandbox, State: hint.State, Removed: hint.Removed,
		}})
		h.enqueueRelist(hint.UID)
	default:
		// From here on times are read from the monotonic clock, and no event is
		// newer than its arrival: a listing must be able to follow it.
		at := now
		if ahead := hint.At.Sub(now); ahead < tick {
			at = now.Add(ahead)
		}
		var asOf time.Time
		if !hint.AsOf.IsZero() && hint.AsOf.Before(hint.At) {
			asOf = at.Add(hint.AsOf.Sub(hint.At))
		}
		h.enqueue(stage.Observation{UID: hint.UID, At: at, AsOf: asOf, Answered: now, Hint: hint})
	}
}

func (h *Hinter) enqueue(o stage.Observation) {
	if len(h.queue) < maxQueued {
		h.queue = append(h.queue, o)
		return
	}
	h.metrics.overflow.Inc()
	h.enqueueRelist(o.UID)
}

func (h *Hinter) enqueueRelist(uid pleg.PodUID) {
	if h.opts.Pods == nil {
		h.opts.Lister.RelistNow()
		return
	}
	if len(h.due) >= maxQueued {
		h.metrics.overflow.Inc()
		h.opts.Lister.RelistNow()
		return
	}
	_, waits := h.requested[uid]
	_, busy := h.busy[uid]
	h.requested[uid] = time.Now()
	if !waits && !busy {
		h.due = append(h.due, uid)
	}
	if len(h.busy) >= h.opts.Relists { // these may hang
		h.opts.Lister.RelistSoon()
	}
}

// startRelist has a worker list the next pod that is due, unless a list of all
// pods that began after the request covers it.
func (h *Hinter) startRelist(ctx context.Context, workers *pool.Pool, relisted chan<- stage.Observation) {
	uid := h.due[0]
	h.due = h.due[1:]
	requested := h.requested[uid]
	delete(h.requested, uid)
	if h.opts.Lister.LastSuccess().After(requested) {
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

// list lists one pod, on a worker. An observation without a time means that the
// list failed; all pods are relisted instead.
func (h *Hinter) list(ctx context.Context, uid pleg.PodUID) stage.Observation {
	start := time.Now()
	pod, err := h.opts.Pods.ListPod(ctx, uid)
	h.metrics.duration.Observe(time.Since(start).Seconds())
	if err == nil {
		return stage.Observation{UID: uid, At: start, Answered: time.Now(), Pod: pod}
	}
	if ctx.Err() == nil {
		h.metrics.errors.Inc()
		h.log.WarnContext(ctx, "single-pod relist failed, relisting all pods", "podUID", uid, "err", err)
		h.opts.Lister.RelistNow()
	}
	return stage.Observation{UID: uid}
}

// finishRelist queues what a worker found. A pod that was requested again
// meanwhile is due again, because what was found may be too old.
func (h *Hinter) finishRelist(o stage.Observation) {
	delete(h.busy, o.UID)
	if _, again := h.requested[o.UID]; again {
		h.due = append(h.due, o.UID)
	}
	if !o.At.IsZero() {
		h.enqueue(o)
	}
}
