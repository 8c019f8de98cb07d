// Package hinter lists single pods, because a CRI event, the kernel or a caller hints that
// something happened to them. It may change in any version.
//
// A hint is never data: it causes a list, whose answer passes through the same differ as the
// listings. The kubelet's Evented PLEG wrote the pod cache from two places and lost that race for
// years (kubernetes#139262).
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

const (
	// maxRelists is the number of single pods listed at once, with two calls each. containerd
	// on 2 cores reaches its maximum throughput with 4 calls.
	maxRelists = 4
	// maxDue is the number of pods that may wait for a list of their own. One list of all pods is
	// cheaper than more of them.
	maxDue = 32
)

// Lister is the stage that lists all pods. Its methods do not block.
type Lister interface {
	// RelistNow requests a list of all pods at once.
	RelistNow()
	// RelistSoon requests one within the relist period.
	RelistSoon()
	// LastBegan returns the tick at which the newest successful list of all pods began.
	LastBegan() uint64
}

// Options configure a [Hinter].
type Options struct {
	// Pods lists one pod. If nil, all pods are listed instead.
	Pods    pleg.PodLister
	Ticks   *stage.Ticks
	Lister  Lister
	Logger  *slog.Logger
	Metrics instrument.Registry
}

// Hinter owns the hints that wait.
type Hinter struct {
	opts     Options
	log      *slog.Logger
	metrics  *metrics
	requests *mailbox.Box[pleg.PodUID]

	// due are the pods that wait for a list. requested is the tick at which the list of each was
	// last requested. busy are the pods being listed.
	due       []pleg.PodUID
	requested map[pleg.PodUID]uint64
	busy      map[pleg.PodUID]struct{}
	// answers wait for the differ: at most maxRelists.
	answers []stage.Observation
}

// New returns a hinter that does not run yet.
func New(o Options) (*Hinter, error) {
	h := &Hinter{
		opts: o, log: o.Logger.With("stage", "hinter"), requests: mailbox.New[pleg.PodUID](),
		requested: make(map[pleg.PodUID]uint64), busy: make(map[pleg.PodUID]struct{}),
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

// Run serves requests until ctx ends; it returns the cause of ctx and closes out.
func (h *Hinter) Run(ctx context.Context, out chan<- stage.Observation) error {
	ctx, stop := context.WithCancelCause(ctx)
	workers := pool.New()
	defer func() {
		stop(nil)
		workers.Wait()
		close(out)
	}()
	ended := make(chan listed)
	for {
		for len(h.due) > 0 && len(h.busy)+len(h.answers) < maxRelists {
			h.startRelist(ctx, workers, ended)
		}
		var send chan<- stage.Observation
		var next stage.Observation
		if len(h.answers) > 0 {
			send, next = out, h.answers[0]
		}
		select {
		case <-h.requests.Wake():
			for _, uid := range h.requests.Take() {
				h.enqueue(uid)
			}
		case l := <-ended:
			h.finishRelist(l)
		case send <- next:
			h.answers = h.answers[1:]
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// enqueue requests a list of a pod. If many are due, all pods are listed at once instead. If all
// lists of single pods are in progress, they may hang, and all pods are listed soon.
func (h *Hinter) enqueue(uid pleg.PodUID) {
	if h.opts.Pods == nil {
		h.opts.Lister.RelistNow()
		return
	}
	_, waits := h.requested[uid]
	_, busy := h.busy[uid]
	h.requested[uid] = h.opts.Ticks.Next()
	if !waits && !busy {
		h.due = append(h.due, uid)
	}
	if len(h.busy) >= maxRelists {
		h.opts.Lister.RelistSoon()
	}
	if len(h.due) > maxDue {
		for _, uid := range h.due {
			delete(h.requested, uid)
		}
		h.due = nil
		h.opts.Lister.RelistNow()
	}
}

// startRelist makes a worker list the next pod that is due, unless a list of all
// pods that began after the request covers it.
func (h *Hinter) startRelist(ctx context.Context, workers *pool.Pool, ended chan<- listed) {
	uid := h.due[0]
	h.due = h.due[1:]
	requested := h.requested[uid]
	delete(h.requested, uid)
	if h.opts.Lister.LastBegan() > requested {
		return
	}
	h.busy[uid] = struct{}{}
	workers.Go(func() {
		select {
		case ended <- h.list(ctx, uid):
		case <-ctx.Done():
		}
	})
}

// listed is how a list of one pod ended.
type listed struct {
	stage.Observation
	failed bool
}

// list lists one pod, on a worker. If that fails, all pods are listed instead.
func (h *Hinter) list(ctx context.Context, uid pleg.PodUID) listed {
	start, began := time.Now(), h.opts.Ticks.Next()
	pod, err := h.opts.Pods.ListPod(ctx, uid)
	h.metrics.duration.Observe(time.Since(start).Seconds())
	if err == nil {
		return listed{Observation: stage.Observation{Asked: stage.Asked{Began: began, Answered: h.opts.Ticks.Next(), At: start}, UID: uid, Pod: pod}}
	}
	if ctx.Err() == nil {
		h.metrics.errors.Inc()
		h.log.WarnContext(ctx, "single-pod relist failed, relisting all pods", "podUID", uid, "err", err)
		h.opts.Lister.RelistNow()
	}
	return listed{stage.Observation{UID: uid}, true}
}

// finishRelist queues the answer that a worker got. A pod that was requested again meanwhile is due
// again, because the answer may be too old.
func (h *Hinter) finishRelist(l listed) {
	delete(h.busy, l.UID)
	if _, again := h.requested[l.UID]; again {
		h.due = append(h.due, l.UID)
	}
	if !l.failed {
		h.answers = append(h.answers, l.Observation)
	}
}
