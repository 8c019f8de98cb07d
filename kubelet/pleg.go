package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepleg "k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Defaults of [Options].
const (
	// DefaultRuntimeRequestTimeout is that of the kubelet's configuration.
	DefaultRuntimeRequestTimeout = 2 * time.Minute
	// DefaultInspectors is the maximum number of concurrent inspections. It
	// is also the maximum number of calls in flight, because the runtime manager gets the
	// statuses of one pod one by one. At the latencies of a busy node 16 inspectors need a tenth of
	// the time of one, lists included.
	DefaultInspectors = 16
)

// Options are limits that NewGenericPLEG does not get.
type Options struct {
	// RuntimeRequestTimeout is that of the kubelet's configuration, after which each
	// call of the runtime ends. The deadlines of a list and of an inspection, which
	// are several calls, are multiples of it. If zero, [DefaultRuntimeRequestTimeout].
	RuntimeRequestTimeout time.Duration
	// Inspectors is the maximum number of pods that are inspected at the same time.
	// If zero, [DefaultInspectors].
	Inspectors int
}

// PLEG is a pod lifecycle event generator of the kubelet. Its methods are safe for
// concurrent use. Only [PLEG.Relist] and [PLEG.Stop] block.
type PLEG struct {
	runtime   kubecontainer.Runtime
	events    chan *kubepleg.PodLifecycleEvent
	durations *kubepleg.RelistDuration
	clock     clock.Clock
	options   Options

	// reported and store are what successive runs share.
	reported *reported
	store    *store
	// relisted is when the last successful list began, by clock; nil before it.
	relisted atomic.Pointer[time.Time]

	mu sync.Mutex // held by Start and Stop, and by a Relist of a stopped generator
	// discarded are the pods that the last run owed a PodSync when it ended.
	discarded []types.UID
	// run is the run since Start; nil while the generator is stopped. Start and Stop
	// set it.
	run atomic.Pointer[run]
}

var _ kubepleg.PodLifecycleEventGenerator = (*PLEG)(nil)

// New returns a generator that [PLEG.Start] starts. It has the parameters of the
// kubelet's NewGenericPLEG (v1.37). If a duration is zero, the kubelet's default
// applies. Like NewGenericPLEG, New panics if an argument is nil or invalid.
func New(runtime kubecontainer.Runtime, eventChannel chan *kubepleg.PodLifecycleEvent,
	relistDuration *kubepleg.RelistDuration, cache kubecontainer.Cache, clk clock.Clock,
) *PLEG {
	return NewWithOptions(Options{}, runtime, eventChannel, relistDuration, cache, clk)
}

// NewWithOptions is [New] with limits from the kubelet's configuration.
func NewWithOptions(o Options, runtime kubecontainer.Runtime, eventChannel chan *kubepleg.PodLifecycleEvent,
	relistDuration *kubepleg.RelistDuration, cache kubecontainer.Cache, clk clock.Clock,
) *PLEG {
	if o.RuntimeRequestTimeout == 0 {
		o.RuntimeRequestTimeout = DefaultRuntimeRequestTimeout
	}
	if o.Inspectors == 0 {
		o.Inspectors = DefaultInspectors
	}
	known := newReported()
	p := &PLEG{
		runtime: runtime, events: eventChannel, durations: relistDuration, clock: clk, options: o,
		reported: known, store: newStore(cache, known),
	}
	if err := p.validate(cache); err != nil {
		panic("kubelet: " + err.Error())
	}
	return p
}

func (p *PLEG) validate(cache kubecontainer.Cache) error {
	switch {
	case p.runtime == nil:
		return errors.New("runtime cannot be nil")
	case p.events == nil:
		return errors.New("eventChannel cannot be nil")
	case p.durations == nil:
		return errors.New("relistDuration cannot be nil")
	case cache == nil:
		return errors.New("cache cannot be nil")
	case p.clock == nil:
		return errors.New("clock cannot be nil")
	case p.durations.RelistPeriod < 0:
		return fmt.Errorf("relistDuration.RelistPeriod cannot be negative, got %v", p.durations.RelistPeriod)
	}
	_, err := p.newRun(klog.Background(), false)
	return err
}

// Start starts the generator, which runs until ctx ends or [PLEG.Stop]. While it
// runs, further calls do nothing. After Stop it starts again and reports what has
// changed since.
//
// If the clock is not a clock.RealClock, it decides when all pods are listed. Every
// other duration is one of package time.
func (p *PLEG) Start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.run.Load(); r != nil && !r.hasEnded() {
		return
	}
	p.forgetEnded()
	_, periodic := p.clock.(clock.RealClock)
	r := p.mustRun(ctx, periodic)
	p.run.Store(r) // before resumeReinspections, so that no request falls between
	p.resumeReinspections(r)
	if periodic {
		r.start(ctx)
		return
	}
	r.start(ctx, func(ctx context.Context) { p.relistByClock(ctx, r.pipeline) })
}

// resumeReinspections passes on what was requested, or has failed, before the run.
func (p *PLEG) resumeReinspections(r *run) {
	for _, uid := range p.reported.reinspections() {
		r.pipeline.RequestReinspect(uid)
	}
}

// relistByClock relists each period of the clock, as GenericPLEG does.
func (p *PLEG) relistByClock(ctx context.Context, pods *pipeline.Pipeline) {
	timer := p.clock.NewTimer(p.durations.RelistPeriod)
	defer timer.Stop()
	for {
		_ = pods.Relist(ctx) // the lister logs an error
		timer.Reset(p.durations.RelistPeriod)
		select {
		case <-timer.C():
		case <-ctx.Done():
			return
		}
	}
}

// Stop stops the generator and waits until its goroutines have ended. It does not
// close the event channel. The kubelet itself never calls Stop.
func (p *PLEG) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.run.Swap(nil); r != nil {
		r.stop()
		p.discarded = r.delivery.discarded
	}
}

// Relist lists all pods and returns once every changed pod has been inspected,
// successfully or not, and its events have been sent, or when ctx ends. If the
// generator is stopped, it runs for this relist alone, and Start and Stop wait. The
// kubelet itself never calls Relist.
func (p *PLEG) Relist(ctx context.Context) {
	if p.relistRunning(ctx) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.relistRunning(ctx) { // a Start came between
		return
	}
	p.forgetEnded()
	r := p.mustRun(ctx, false)
	p.resumeReinspections(r)
	r.start(ctx)
	r.relist(ctx)
	r.stop()
	p.discarded = r.delivery.discarded
}

// relistRunning is Relist of a generator that runs; otherwise it returns false.
func (p *PLEG) relistRunning(ctx context.Context) bool {
	r := p.run.Load()
	if r == nil || r.hasEnded() {
		return false
	}
	r.relist(ctx)
	return true
}

// forgetEnded keeps what the run that has ended, if there is one, owes the kubelet.
func (p *PLEG) forgetEnded() {
	if r := p.run.Swap(nil); r != nil {
		p.discarded = r.delivery.discarded
	}
}

// Watch returns the event channel that was passed to [New].
func (p *PLEG) Watch() chan *kubepleg.PodLifecycleEvent { return p.events }

// Healthy reports whether the last successful list of all pods began less than the
// relist threshold ago, and if not, why. Hung inspections do not delay the lists, but
// if pods wait and no inspection succeeds, the pipeline itself is not healthy.
func (p *PLEG) Healthy() (bool, error) {
	at := p.relisted.Load()
	if at == nil {
		return false, errors.New("pleg has yet to be successful")
	}
	if elapsed, threshold := p.clock.Since(*at), p.threshold(); elapsed > threshold {
		return false, fmt.Errorf("pleg was last seen active %v ago; threshold is %v", elapsed, threshold)
	}
	// Before its first list, the pipeline of this run knows less.
	if r := p.run.Load(); r != nil && r.periodic && p.store.listedSince(r.created) {
		return r.pipeline.Healthy()
	}
	return true, nil
}

func (p *PLEG) threshold() time.Duration {
	if p.durations.RelistThreshold > 0 {
		return p.durations.RelistThreshold
	}
	return pipeline.DefaultRelistThreshold
}

// RequestReinspect makes the next relist inspect the pod even if it has not changed.
// In that case a PodSync is sent.
func (p *PLEG) RequestReinspect(podUID types.UID) {
	p.reported.requestReinspect(pleg.PodUID(podUID))
	if r := p.run.Load(); r != nil {
		r.pipeline.RequestReinspect(pleg.PodUID(podUID))
	}
}

// RequestRelist relists one pod at once, if the generator runs. Waiting requests for the
// same pod share one list. If the pod is gone, its events are sent. The gate
// PLEGOnDemandRelist is not read: v1.37 has locked it on.
func (p *PLEG) RequestRelist(_ klog.Logger, podUID types.UID) {
	if r := p.run.Load(); r != nil {
		r.pipeline.RequestRelist(pleg.PodUID(podUID))
	}
}
