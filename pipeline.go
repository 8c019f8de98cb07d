package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/hint/crievents"
	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/internal/containerindex"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/stage/lister"
)

// Pipeline is the stages and the cache. Create it with [New].
type Pipeline struct {
	cache   *podcache.Cache
	index   *containerindex.Index
	runtime *border.Runtime
	// statuses are the stores that the stages write: the cache, the index, and Options.Store.
	statuses *stores
	running  atomic.Bool
	ended    chan struct{} // closed as Run returns
	// unregister takes the metrics out of Options.Registerer.
	unregister func()
	opts       Options // complete
	ages       verdict.Ages
	recent     verdict.Recent // inspections

	ticks      stage.Ticks
	events     *crievents.Follower // nil if CRI events are off
	lister     *lister.Lister
	hinter     *hinter.Hinter
	differ     *differ.Differ
	inspector  *inspector.Inspector
	dispatcher *dispatcher.Dispatcher
}

// New returns a pipeline that does not run yet. If an option is bad, the error names the option and
// wraps [pleg.ErrInvalidOption]; otherwise it says why the metrics could not be registered. Run, when
// it returns, and Close unregister them.
func New(o Options) (*Pipeline, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("new pipeline: %w", option.Invalid(err))
	}
	metrics := instrument.Registry{KubeletNames: o.KubeletMetricNames}
	p := &Pipeline{
		ended: make(chan struct{}), cache: podcache.New(), unregister: func() {},
	}
	if o.Registerer != nil {
		metrics.Registerer, p.unregister = instrument.Undoable(o.Registerer)
	}
	p.opts = o
	if err := p.build(metrics); err != nil {
		p.unregister() // so that a second try can succeed
		return nil, fmt.Errorf("new pipeline: %w", err)
	}
	return p, nil
}

// build creates each stage after the stages that it calls.
func (p *Pipeline) build(metrics instrument.Registry) (err error) {
	o := &p.opts
	p.runtime, err = border.New(o.Runtime, border.Options{ListTimeout: o.ListTimeout, KubeletEvents: o.KubeletEvents, Logger: o.Logger, Metrics: metrics})
	if err != nil {
		return err
	}
	p.lister, err = lister.New(lister.Options{
		Runtime: p.runtime, Prober: p.runtime.Prober(), Ticks: &p.ticks,
		RelistPeriod: o.RelistPeriod, RelistThreshold: o.RelistThreshold, RelistPeriodWithEvents: o.RelistPeriodWithEvents, KubeletEvents: o.KubeletEvents,
		Logger: o.Logger, Metrics: metrics,
	})
	if err != nil {
		return err
	}
	p.index = containerindex.NewIndex(containerindex.Source{Relist: p.lister.Relist, Uninspected: p.cache.Uninspected, Ended: p.ended})
	p.statuses = &stores{Cache: p.cache, own: o.Store, index: p.index, log: o.Logger, ending: make(chan struct{})}
	p.hinter, err = hinter.New(hinter.Options{
		Pods: p.runtime.PodLister(), Ticks: &p.ticks, Lister: p.lister, Logger: o.Logger, Metrics: metrics,
	})
	if err != nil {
		return err
	}
	p.differ, err = differ.New(differ.Options{
		Cache: p.statuses, RelistSoon: p.lister.RelistSoon, RelistPod: p.hinter.RequestRelist,
		RelistPeriod: o.RelistPeriod, MaxQuarantine: o.MaxQuarantine, Inspectors: o.Inspectors, KubeletEvents: o.KubeletEvents,
		Logger: o.Logger, Metrics: metrics,
	})
	if err != nil {
		return err
	}
	p.inspector, err = inspector.New(inspector.Options{
		Runtime: p.runtime, Cache: p.statuses, Inspectors: o.Inspectors, Ended: p.recent.Ended,
		InspectTimeout: o.InspectTimeout, HungAfter: hungAfter,
		Logger: o.Logger, Metrics: metrics,
	})
	if err != nil {
		return err
	}
	p.dispatcher, err = dispatcher.New(dispatcher.Options{
		History: o.History, SlowAfter: slowAfter, Status: p.lastStatus, Synced: p.cache.MarkSynced, Logger: o.Logger, Metrics: metrics,
	})
	if err != nil {
		return err
	}
	if o.Events != EventsOff {
		p.events, err = crievents.New(p.runtime.EventWatcher(), hints{p, p.lister}, crievents.Options{
			Required: o.Events == EventsRequire, Logger: o.Logger, Metrics: metrics,
		})
		if err != nil {
			return err
		}
	}
	return metrics.Register(verdict.Metric(p.status), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pleg_healthy",
		Help: "1 while Healthy returns true, otherwise 0.",
	}, func() float64 {
		ok, _ := p.Healthy()
		return instrument.Bool(ok)
	}))
}

// Run runs the stages until ctx ends, and then returns nil: [context.Cause] of ctx says why. No
// goroutine of the pipeline is left, and every subscriber's channel is closed. Failures of the
// runtime are retried. Run returns an error in these cases:
//
//   - Options.Events is [EventsRequire] and the runtime has no events: the error wraps
//     [pleg.ErrNoEvents];
//   - calls of Options.Runtime still run a second after the end of their context, or one of
//     Options.Store a second after the end of ctx;
//   - Run was called before: a pipeline runs once.
func (p *Pipeline) Run(ctx context.Context) error {
	if p.running.Swap(true) {
		return errors.New("run pipeline: it has already run: create a new one")
	}
	// All channels except one are unbuffered: messages wait in a stage's queue, which is bounded
	// and measured by a metric.
	listings := make(chan stage.Listing)
	observations := make(chan stage.Observation)
	inspect := make(chan stage.Change)
	retry := make(chan stage.Change)
	late := make(chan stage.Change)
	gone := make(chan stage.Change)
	cancel := make(chan stage.Cancel)
	marks := make(chan stage.Mark)
	outcomes := make(chan stage.Outcome, stage.OutcomeBuffer)
	settled := make(chan stage.Settled)
	// Only the sources and the runtime calls end with ctx. Every other stage ends when the stage
	// before it has closed its channel.
	ended := ctx
	stages, ctx := errgroup.WithContext(ctx)
	storeEnded := p.statuses.endWith(ctx)
	stages.Go(func() error { return p.lister.Run(ctx, listings) })
	stages.Go(func() error { return p.hinter.Run(ctx, observations) })
	stages.Go(func() error { return verdict.Watch(ctx, p.status, p.opts.Logger) })
	if p.events != nil {
		stages.Go(func() error { return p.events.Run(ctx) })
	}
	stages.Go(func() error {
		return p.differ.Run(listings, observations, settled, differ.Outputs{Inspect: inspect, Retry: retry, Late: late, Gone: gone, Cancel: cancel, Marks: marks})
	})
	stages.Go(func() error {
		return p.inspector.Run(ctx, inspector.Inputs{Inspect: inspect, Retry: retry, Late: late, Gone: gone, Cancel: cancel}, outcomes, settled)
	})
	stages.Go(func() error { return p.dispatcher.Run(outcomes, marks) })
	err := stages.Wait()
	storeEnded()
	if ended.Err() != nil && errors.Is(err, context.Cause(ended)) {
		err = nil
	}
	p.cache.Close()
	p.unregister() // so that another pipeline can use the registerer
	close(p.ended)
	return errors.Join(err, p.runtime.Abandoned(), p.statuses.abandoned())
}

// Close ends a pipeline whose Run was never called, as Run ends it: its metrics are unregistered and its
// subscribers get [pleg.ErrStopped]. Run returns an error after that. Once Run was called, Close does
// nothing: the context of Run ends the pipeline. Close does not wait for the runtime.
func (p *Pipeline) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Run(ctx) // Run does nothing if it was called before
}

// Epoch returns the name of this pipeline, as in its events and positions. No two pipelines share
// an epoch, in whatever process.
func (p *Pipeline) Epoch() string { return p.dispatcher.Epoch() }

// WaitSynced blocks until the first list of all pods is committed: each of its pods was
// inspected, or its inspection failed or hangs. It returns the cause of ctx if ctx ends
// first, and [pleg.ErrStopped] if Run returns first. It may be called before Run.
func (p *Pipeline) WaitSynced(ctx context.Context) error {
	if p.cache.IsSynced() {
		return nil // that came first, whatever has ended since
	}
	select {
	case <-p.cache.Synced():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ended:
		return pleg.ErrStopped
	}
}

// Cache returns the statuses of all pods. After Run has returned, the cache stays
// readable and does not change, and GetNewerThan returns [pleg.ErrStopped] in place of waiting.
func (p *Pipeline) Cache() cache.Reader { return p.cache }

// RequestReinspect requests an inspection of one pod at the next relist, which comes within
// Options.RelistPeriod, whether or not the pod changed. If it did not, subscribers get a PodSync.
// If the next relist does not show the pod, the request is dropped.
//
// RequestReinspect ends the pod's wait in quarantine, and an inspection of the pod that hangs. It
// does not wait for either. Methods that begin with Request never block.
func (p *Pipeline) RequestReinspect(uid pleg.PodUID) { p.differ.RequestReinspect(uid) }

// RequestRelist requests a list of one pod at once, and an inspection if the pod changed. One list
// serves all requests for the pod that wait. If Runtime is not a [pleg.PodLister], all pods are
// listed, with a pause between two such lists (Options.RelistPeriod).
//
// RequestRelist ends the pod's wait in quarantine, and an inspection of the pod that hangs. It does
// not wait for the list; [Pipeline.RelistPod] does.
func (p *Pipeline) RequestRelist(uid pleg.PodUID) {
	p.differ.RequestRetry(uid)
	p.hinter.RequestRelist(uid)
}

// RelistAll requests a list of all pods, and blocks until each changed pod has been inspected,
// successfully or not, and the events have been published. Calls that wait for a list to begin
// share it, and there is a pause between two such lists (Options.RelistPeriod). Before Run, RelistAll
// waits for the first list.
//
// It returns the error of the list, the cause of ctx if ctx ends first, or [pleg.ErrStopped] once
// Run has returned.
func (p *Pipeline) RelistAll(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // before the caller is put into a mailbox
	}
	relisted := p.lister.Relist()
	select {
	case err := <-relisted:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ended:
		return pleg.ErrStopped
	}
}

// hints is the pipeline as the event stream sees it.
type hints struct {
	p *Pipeline
	*lister.Lister
}

// RequestRelist does not cancel the inspection in flight: on a slow runtime none would ever
// succeed.
func (h hints) RequestRelist(uid pleg.PodUID) {
	h.p.differ.EndWait(uid)
	h.p.hinter.RequestRelist(uid)
}

// StreamUp makes ends wait for their events, except with KubeletEvents: the kubelet takes no exit
// codes from events.
func (h hints) StreamUp(up bool) {
	h.p.cache.AnnounceRemoved(up && !h.p.opts.KubeletEvents)
	h.Lister.StreamUp(up)
}

func (h hints) Announce(hint pleg.Hint) {
	if len(hint.Others) > 0 {
		known, _ := h.p.cache.Get(hint.UID)
		for _, st := range hint.Others {
			if c := known.Container(st.ID); c == nil || c.State != pleg.StateExited {
				h.p.cache.KeepRemoved(st)
			}
		}
	}
	switch {
	case hint.Status != nil: // the container may be removed before it is inspected
		h.p.cache.KeepRemoved(hint.Status)
	case hint.State == pleg.StateExited:
		h.p.cache.NoteRemoved(hint.Container, hint.Removed)
	}
	h.p.differ.Announce(differ.Announcement{Hint: hint, Tick: h.p.ticks.Next()})
}
