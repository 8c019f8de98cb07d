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
	// inspectors is the maximum number of concurrent inspections. It is also that
	// of calls in flight, because the runtime manager gets the statuses of one pod
	// one by one. At the latencies of a busy node 16 inspectors need a tenth of
	// the time of one, lists included.
	inspectors = 16
	// Each call of the runtime ends after --runtime-request-timeout, 2 minutes by
	// default. A list is two calls, an inspection one for each container and
	// sandbox. These timeouts bound several calls together.
	listTimeout    = 5 * time.Minute
	inspectTimeout = 10 * time.Minute
	// minBuffer is the minimum buffer of the subscription. It need not be large,
	// because deliver never waits.
	minBuffer = 1000
)

// PLEG is a pod lifecycle event generator of the kubelet. Its methods are safe for
// concurrent use and do not block, except [PLEG.Stop].
type PLEG struct {
	logger   klog.Logger
	events   chan *pleg.PodLifecycleEvent
	pipeline *pipeline.Pipeline
	// deliveries is subscribed by New, so that it gets every event.
	deliveries *pipeline.Subscription

	mu      sync.Mutex // guards what follows
	cancel  context.CancelCauseFunc
	stopped chan struct{} // closed when all goroutines have ended
}

var _ pleg.PodLifecycleEventGenerator = (*PLEG)(nil)

var errStopped = errors.New("the generator has been stopped")

// New returns a generator that [PLEG.Start] starts. It has the parameters of the
// kubelet's NewGenericPLEG (v1.36). If a duration is zero, the kubelet's default
// applies. Like NewGenericPLEG, New panics if an argument is nil or invalid. The
// clock must be a clock.RealClock, because the pipeline uses package time.
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
		Name: "kubelet", Buffer: max(cap(events), minBuffer),
	})
	return p, err
}

// Start starts the generator, which runs until [PLEG.Stop]. Further calls do
// nothing, also after Stop.
func (p *PLEG) Start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		return
	}
	// The kubelet's interface has no context.
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

// Stop stops the generator and waits until its goroutines have ended. It does not
// close the event channel. The kubelet itself never calls Stop.
func (p *PLEG) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel == nil {
		return
	}
	p.cancel(errStopped)
	<-p.stopped
}

// Watch returns the event channel that was passed to [New].
func (p *PLEG) Watch() chan *pleg.PodLifecycleEvent { return p.events }

// Healthy reports whether the last successful list of all pods began less than the
// relist threshold ago, and if not, why. Unlike in GenericPLEG, hung inspections do
// not delay the lists.
func (p *PLEG) Healthy() (bool, error) { return p.pipeline.Healthy() }

// RequestReinspect makes the next relist inspect the pod even if it has not changed.
// In that case a PodSync is sent.
func (p *PLEG) RequestReinspect(podUID types.UID) {
	p.pipeline.RequestReinspect(pipeline.PodUID(podUID))
}

// RequestRelist relists one pod at once, if the feature gate PLEGOnDemandRelist is
// on. Waiting requests for the same pod share one list. If the pod is gone, its
// events are sent.
func (p *PLEG) RequestRelist(podUID types.UID) {
	if utilfeature.DefaultFeatureGate.Enabled(features.PLEGOnDemandRelist) {
		p.pipeline.RequestRelist(pipeline.PodUID(podUID))
	}
}
