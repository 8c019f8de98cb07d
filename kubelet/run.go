package kubelet

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
)

// minBuffer is the minimum buffer of the subscription. It need not be large, because
// delivery never waits.
const minBuffer = 1000

var errStopped = errors.New("the generator has been stopped")

// run is the life of one pipeline. A pipeline runs once, so that each Start makes
// another one, which begins with what the earlier ones have reported.
type run struct {
	pipeline *pipeline.Pipeline
	delivery *delivery
	log      klog.Logger
	// periodic is true if the pipeline itself lists all pods each period.
	periodic bool
	created  time.Time

	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when all goroutines have ended
}

// newRun returns a run that has not started.
func (p *PLEG) newRun(log klog.Logger, periodic bool) (*run, error) {
	o := pipeline.Options{
		Runtime:         &adapter{runtime: p.runtime, clock: p.clock, relisted: &p.relisted, reported: p.reported},
		Known:           p.reported.pods(),
		RelistPeriod:    p.durations.RelistPeriod,
		RelistThreshold: p.durations.RelistThreshold,
		// A list is two calls, an inspection one for each container and sandbox.
		ListTimeout:    p.options.RuntimeRequestTimeout * 5 / 2,
		InspectTimeout: p.options.RuntimeRequestTimeout * 5,
		Inspectors:     p.options.Inspectors,
		Store:          p.store,
		Logger:         slog.New(logr.ToSlogHandler(log)),
	}
	if !periodic {
		o.RelistPeriod = -1
	}
	r := &run{log: log, periodic: periodic, created: time.Now(), ended: make(chan struct{})}
	var err error
	if r.pipeline, err = pipeline.New(o); err != nil {
		return nil, err
	}
	// Subscribed before the pipeline runs, so that it gets every event.
	events, err := r.pipeline.Subscribe(pipeline.SubscribeOptions{Name: "kubelet", Buffer: max(cap(p.events), minBuffer)})
	r.delivery = newDelivery(events, p.events, p.discarded, log)
	return r, err
}

// mustRun is newRun with options that New has checked.
func (p *PLEG) mustRun(ctx context.Context, periodic bool) *run {
	r, err := p.newRun(klog.FromContext(ctx), periodic)
	if err != nil {
		panic("kubelet: " + err.Error())
	}
	return r
}

// start runs the pipeline and the tasks until ctx ends or stop.
func (r *run) start(ctx context.Context, tasks ...func(context.Context)) {
	ctx, r.cancel = context.WithCancelCause(ctx)
	var all errgroup.Group
	all.Go(func() error {
		defer r.cancel(nil)
		return r.pipeline.Run(ctx)
	})
	all.Go(func() error { r.delivery.run(); return nil })
	for _, task := range tasks {
		all.Go(func() error { task(ctx); return nil })
	}
	go func() {
		defer close(r.ended)
		if err := all.Wait(); !errors.Is(err, context.Cause(ctx)) {
			r.log.Error(err, "The pod lifecycle event generator ended")
		}
	}()
}

// stop ends the run and waits until its goroutines have ended. Events that are on
// their way are sent.
func (r *run) stop() {
	r.cancel(errStopped)
	<-r.ended
}

func (r *run) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// relist returns once the events of a relist have been sent, or when ctx or the run
// ends. The lister logs an error of the list.
func (r *run) relist(ctx context.Context) {
	_ = r.pipeline.Relist(ctx)
	r.delivery.flush(ctx, r.ended)
}
