package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
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
	// DefaultRuntimeRequestTimeout is the default of the kubelet's configuration.
	DefaultRuntimeRequestTimeout = 2 * time.Minute
	// DefaultInspectors is the maximum number of concurrent inspections. It is also the maximum
	// number of calls in flight, because the runtime manager gets the statuses of a pod one after
	// the other. At the latencies of a busy node 16 inspectors need a tenth of the time of a single
	// inspector, lists included.
	DefaultInspectors = 16
)

// Options are limits that NewGenericPLEG does not get.
type Options struct {
	// RuntimeRequestTimeout is the setting of the kubelet's configuration: after it each
	// call of the runtime ends. A list and an inspection are several calls: their deadlines are
	// multiples of this setting. If zero, [DefaultRuntimeRequestTimeout].
	RuntimeRequestTimeout time.Duration
	// Inspectors is the maximum number of pods that are inspected at the same time.
	// If zero, [DefaultInspectors].
	Inspectors int
}

// PLEG is a pod lifecycle event generator of the kubelet. Its methods are safe for
// concurrent use, and none blocks.
type PLEG struct {
	pipeline *pipeline.Pipeline
	delivery *delivery
	started  atomic.Bool
}

var _ kubepleg.PodLifecycleEventGenerator = (*PLEG)(nil)

// New returns a generator that [PLEG.Start] starts. It takes the parameters of the kubelet's
// NewGenericPLEG (v1.37). If a duration is zero, the kubelet's default applies. Like
// NewGenericPLEG, New panics if an argument is nil or invalid. The clock must be a clock.RealClock:
// all durations are measured by package time.
func New(runtime kubecontainer.Runtime, eventChannel chan *kubepleg.PodLifecycleEvent,
	relistDuration *kubepleg.RelistDuration, cache kubecontainer.Cache, clk clock.Clock,
) *PLEG {
	return NewWithOptions(Options{}, runtime, eventChannel, relistDuration, cache, clk)
}

// NewWithOptions is [New] with limits from the kubelet's configuration.
func NewWithOptions(o Options, runtime kubecontainer.Runtime, eventChannel chan *kubepleg.PodLifecycleEvent,
	relistDuration *kubepleg.RelistDuration, cache kubecontainer.Cache, clk clock.Clock,
) *PLEG {
	o.RuntimeRequestTimeout = cmp.Or(o.RuntimeRequestTimeout, DefaultRuntimeRequestTimeout)
	o.Inspectors = cmp.Or(o.Inspectors, DefaultInspectors)
	p := &PLEG{}
	if err := p.connect(o, runtime, eventChannel, relistDuration, cache, clk); err != nil {
		panic("kubelet: " + err.Error())
	}
	return p
}

// connect makes the pipeline between the runtime and the channel.
func (p *PLEG) connect(o Options, runtime kubecontainer.Runtime, to chan *kubepleg.PodLifecycleEvent,
	durations *kubepleg.RelistDuration, cache kubecontainer.Cache, clk clock.Clock,
) error {
	switch {
	case runtime == nil:
		return errors.New("runtime cannot be nil")
	case to == nil:
		return errors.New("eventChannel cannot be nil")
	case durations == nil:
		return errors.New("relistDuration cannot be nil")
	case cache == nil:
		return errors.New("cache cannot be nil")
	}
	if _, ok := clk.(clock.RealClock); !ok {
		return fmt.Errorf("clock must be a clock.RealClock, got %T", clk)
	}
	var err error
	p.pipeline, err = pipeline.New(pipeline.Options{
		Runtime:         &adapter{runtime: runtime},
		RelistPeriod:    durations.RelistPeriod,
		RelistThreshold: durations.RelistThreshold,
		// A list is two calls, an inspection a call for each container and sandbox.
		ListTimeout:    o.RuntimeRequestTimeout * 5 / 2,
		InspectTimeout: o.RuntimeRequestTimeout * 5,
		Inspectors:     o.Inspectors,
		Store:          newStore(cache),
		// The kubelet does not know a start that no list showed.
		KubeletEvents: true,
		Logger:        slog.New(logr.ToSlogHandler(klog.Background())),
	})
	if err != nil {
		return err
	}
	// Subscribed before the pipeline runs, so that it gets every event.
	events, err := p.pipeline.Subscribe(pleg.SubscribeOptions{Name: "kubelet"})
	p.delivery = &delivery{from: events, to: to}
	return err
}

// Start starts the generator, which runs until ctx ends. Further calls do nothing.
func (p *PLEG) Start(ctx context.Context) {
	if p.started.Swap(true) {
		return
	}
	log := klog.FromContext(ctx)
	go p.delivery.run(ctx, log)
	go func() {
		if err := p.pipeline.Run(ctx); err != nil {
			log.Error(err, "The pod lifecycle event generator ended")
		}
	}()
}

// Watch returns the event channel that was passed to [New].
func (p *PLEG) Watch() chan *kubepleg.PodLifecycleEvent { return p.delivery.to }

// Healthy returns the result of the pipeline's Healthy. It reports whether the last successful list
// of all pods began less than the relist threshold ago, and if not, why. Hung inspections do not
// delay the lists, but if pods wait and no inspection succeeds, the pipeline is not healthy either.
func (p *PLEG) Healthy() (bool, error) { return p.pipeline.Healthy() }

// RequestReinspect makes the next relist inspect the pod even if it has not changed.
// In that case a PodSync is sent.
func (p *PLEG) RequestReinspect(podUID types.UID) { p.pipeline.RequestReinspect(pleg.PodUID(podUID)) }

// RequestRelist relists one pod at once. Waiting requests for the same pod share one
// list. If the pod is gone, its events are sent. The gate PLEGOnDemandRelist is not
// read: v1.37 has locked it on.
func (p *PLEG) RequestRelist(_ klog.Logger, podUID types.UID) {
	p.pipeline.RequestRelist(pleg.PodUID(podUID))
}
