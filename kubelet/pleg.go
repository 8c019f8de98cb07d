package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
)

const (
	// inspectors bounds the pods inspected at once. The runtime manager asks
	// for the statuses of one pod one after the other, so that this is also
	// the greatest number of calls in flight. At the latencies of a busy node
	// 16 take a tenth of the time that one takes, lists included.
	inspectors = 16
	// Each call to the runtime ends with --runtime-request-timeout, 2 minutes
	// unless configured. A list is two calls, an inspection one for each
	// container and sandbox of the pod: these bound what is left.
	listTimeout    = 5 * time.Minute
	inspectTimeout = 10 * time.Minute
	// leastBuffer is room for the events between the pipeline and the
	// kubelet's channel, which is emptied without ever waiting.
	leastBuffer = 1000
)

// PLEG is a pod lifecycle event generator of the kubelet. Its methods are safe
// for concurrent use and do not block, but [PLEG.Stop].
type PLEG struct {
	logger   klog.Logger
	events   chan *pleg.PodLifecycleEvent
	pipeline *pipeline.Pipeline
	// deliveries is subscribed by New, so that nothing is missed.
	deliveries *pipeline.Subscription

	mu      sync.Mutex // guards what follows
	cancel  context.CancelCauseFunc
	stopped chan struct{} // closed when nothing runs any more
}

var _ pleg.PodLifecycleEventGenerator = (*PLEG)(nil)

var errStopped = errors.New("the generator has been stopped")

// New returns a generator that is yet to be started. It takes the arguments of
// the kubelet's NewGenericPLEG (v1.36). A duration that is zero has the
// kubelet's default. It panics, as NewGenericPLEG does, if an argument is nil
// or otherwise bad. The pipeline keeps the time of package time, so that clock
// has to be a clock.RealClock.
func New(logger klog.Logger, runtime kubecontainer.Runtime, eventChannel chan *pleg.PodLifecycleEvent,
	relistDuration *pleg.RelistDuration, cache kubecontainer.Cache, clk clock.Clock,
) *PLEG {
	p, err := newPLEG(logger, runtime, eventChannel, relistDuration, cache, clk)
	if err != nil {
		panic("kubelet: " + err.Error())
	}
	return p
}

func newPLEG(logger klog.Logger, runtime kubecontainer.Runtime, events chan *pleg.PodLifecycleEvent,
	durations *pleg.RelistDuration, cache kubecontainer.Cache, clk clock.Clock,
) (*PLEG, error) {
	switch {
	case runtime == nil:
		return nil, errors.New("runtime cannot be nil")
	case events == nil:
		return nil, errors.New("eventChannel cannot be nil")
	case durations == nil:
		return nil, errors.New("relistDuration cannot be nil")
	case cache == nil:
		return nil, errors.New("cache cannot be nil")
	}
	if _, ok := clk.(clock.RealClock); !ok {
		return nil, fmt.Errorf("clock must be a clock.RealClock, got %T", clk)
	}
	p := &PLEG{logger: logger, events: events}
	var err error
	p.pipeline, err = pipeline.New(pipeline.Options{
		Runtime:         &adapter{runtime: runtime},
		RelistPeriod:    durations.RelistPeriod,
		RelistThreshold: durations.RelistThreshold,
		ListTimeout:     listTimeout,
		Inspectors:      inspectors,
		InspectTimeout:  inspectTimeout,
		Store:           newStore(cache),
		Logger:          slog.New(logr.ToSlogHandler(logger)),
	})
	if err != nil {
		return nil, err
	}
	p.deliveries, err = p.pipeline.Subscribe(pipeline.SubscribeOptions{
		Name: "kubelet", Buffer: max(cap(events), leastBuffer),
	})
	return p, err
}

// Start runs the generator until [PLEG.Stop]. Further calls do nothing; a
// generator that was stopped is not started again.
func (p *PLEG) Start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		return
	}
	// The interface has no context: this is where the generator's life begins.
	ctx, cancel := context.WithCancelCause(context.Background())
	p.cancel, p.stopped = cancel, make(chan struct{})
	go p.run(ctx)
}

func (p *PLEG) run(ctx context.Context) {
	defer close(p.stopped)
	var tasks errgroup.Group
	tasks.Go(func() error { return p.pipeline.Run(ctx) })
	tasks.Go(func() error { p.deliver(); return nil })
	if err := tasks.Wait(); !errors.Is(err, errStopped) {
		p.logger.Error(err, "The pod lifecycle event generator ended")
	}
}

// Stop ends the generator and waits until nothing of it runs. The event channel
// stays open. The kubelet, which runs until its process ends, does not call it.
func (p *PLEG) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel == nil {
		return
	}
	p.cancel(errStopped)
	<-p.stopped
}

// Watch returns the event channel that New was given.
func (p *PLEG) Watch() chan *pleg.PodLifecycleEvent { return p.events }

// Healthy reports whether the last successful list of all pods began less than
// the relist threshold ago, and if not, why. Unlike in GenericPLEG, pods whose
// inspection hangs do not hold up the lists.
func (p *PLEG) Healthy() (bool, error) { return p.pipeline.Healthy() }

// RequestReinspect has the pod inspected at the next relist whether or not it
// changed, and reported by a PodSync if it did not.
func (p *PLEG) RequestReinspect(podUID types.UID) {
	p.pipeline.RequestReinspect(pipeline.PodUID(podUID))
}

// RequestRelist has one pod relisted at once, if the feature gate
// PLEGOnDemandRelist is on. No request is dropped: those for the same pod that
// wait are served by one list. A pod that has vanished is reported too.
func (p *PLEG) RequestRelist(podUID types.UID) {
	if utilfeature.DefaultFeatureGate.Enabled(features.PLEGOnDemandRelist) {
		p.pipeline.RequestRelist(pipeline.PodUID(podUID))
	}
}
