package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/stage/lister"
)

// Defaults of [Options]. Those with a counterpart in the kubelet (v1.36) are
// its own.
const (
	DefaultRelistPeriod    = time.Second
	DefaultRelistThreshold = 3 * time.Minute
	DefaultListTimeout     = 2 * time.Minute
	DefaultInspectTimeout  = 2 * time.Minute
	DefaultInspectors      = 8
	DefaultHistory         = 8192
	DefaultSlowAfter       = 30 * time.Second
)

// Options configure a [Pipeline]. Only Runtime is required.
type Options struct {
	// Runtime is asked for pods and their statuses.
	Runtime Runtime
	// RelistPeriod is the time from the end of one list of all pods to the
	// next. If zero, [DefaultRelistPeriod].
	RelistPeriod time.Duration
	// RelistThreshold is the age of the last successful list at which
	// [Pipeline.Healthy] says no. If zero, [DefaultRelistThreshold].
	RelistThreshold time.Duration
	// ListTimeout ends a list that takes longer. If zero, [DefaultListTimeout].
	ListTimeout time.Duration
	// Inspectors is the number of pods inspected at once, and so a bound on
	// the load on the runtime. If zero, [DefaultInspectors].
	Inspectors int
	// InspectTimeout ends an inspection that takes longer. If zero,
	// [DefaultInspectTimeout].
	InspectTimeout time.Duration
	// History is the number of events kept for subscribers that resume, some
	// 200 bytes each. If zero, [DefaultHistory].
	History int
	// SlowAfter is for how long a subscriber may leave an event unread before
	// that is logged, once. If zero, [DefaultSlowAfter].
	SlowAfter time.Duration
	// Logger gets what an operator should know. If nil, nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics. If nil, they are not registered.
	Registerer prometheus.Registerer
	// KubeletMetricNames gives the metrics that the kubelet has too its exact
	// names, so that dashboards and alerts made for it work.
	KubeletMetricNames bool
}

// Pipeline is the four stages and the cache. Create it with [New].
type Pipeline struct {
	threshold time.Duration
	cache     *cache.Cache
	running   atomic.Bool

	lister     *lister.Lister
	differ     *differ.Differ
	inspector  *inspector.Inspector
	dispatcher *dispatcher.Dispatcher
}

// New returns a pipeline that is yet to run. The error names the option that is
// bad, or says why the metrics could not be registered.
func New(o Options) (*Pipeline, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	metrics := instrument.Registry{Registerer: o.Registerer, KubeletNames: o.KubeletMetricNames}
	p := &Pipeline{threshold: o.RelistThreshold, cache: cache.New()}
	var errs [4]error
	p.lister, errs[0] = lister.New(lister.Options{
		Runtime: o.Runtime, RelistPeriod: o.RelistPeriod, ListTimeout: o.ListTimeout,
		Logger: o.Logger, Metrics: metrics,
	})
	p.differ, errs[1] = differ.New(differ.Options{Cache: p.cache, Logger: o.Logger, Metrics: metrics})
	p.inspector, errs[2] = inspector.New(inspector.Options{
		Runtime: o.Runtime, Cache: p.cache, Inspectors: o.Inspectors, InspectTimeout: o.InspectTimeout,
		Logger: o.Logger, Metrics: metrics,
	})
	p.dispatcher, errs[3] = dispatcher.New(dispatcher.Options{
		History: o.History, SlowAfter: o.SlowAfter, Logger: o.Logger, Metrics: metrics,
	})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("new pipeline: %w", err)
	}
	return p, nil
}

func (o *Options) complete() error {
	if o.Runtime == nil {
		return errors.New("new pipeline: Options.Runtime is required: use cri.New, or bring your own")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"RelistPeriod", &o.RelistPeriod, DefaultRelistPeriod},
		{"RelistThreshold", &o.RelistThreshold, DefaultRelistThreshold},
		{"ListTimeout", &o.ListTimeout, DefaultListTimeout},
		{"InspectTimeout", &o.InspectTimeout, DefaultInspectTimeout},
		{"SlowAfter", &o.SlowAfter, DefaultSlowAfter},
	} {
		if *d.value < 0 {
			return fmt.Errorf("new pipeline: Options.%s must be positive, got %v", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	for _, n := range []struct {
		name  string
		value *int
		def   int
	}{
		{"Inspectors", &o.Inspectors, DefaultInspectors},
		{"History", &o.History, DefaultHistory},
	} {
		if *n.value < 0 {
			return fmt.Errorf("new pipeline: Options.%s must be positive, got %d", n.name, *n.value)
		}
		if *n.value == 0 {
			*n.value = n.def
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Run runs the stages until ctx ends, and then returns the cause of ctx: it has
// no other error, since what the runtime fails at is retried. When it returns,
// no goroutine is left and every subscriber's channel is closed. A pipeline
// runs once; a second call is an error.
func (p *Pipeline) Run(ctx context.Context) error {
	if p.running.Swap(true) {
		return errors.New("run pipeline: it has been run before: make a new one")
	}
	// Unbuffered: what waits, waits in the differ's queue, where it is bounded
	// by the number of pods and seen in a metric.
	listings := make(chan stage.Listing)
	inspect := make(chan stage.Change)
	known := make(chan stage.Change)
	outcomes := make(chan stage.Outcome)
	settled := make(chan stage.Settled)
	// Only the lister and the runtime calls end with ctx. The other stages end
	// when the one before them has closed its channel.
	var stages errgroup.Group
	stages.Go(func() error { return p.lister.Run(ctx, listings) })
	stages.Go(func() error { return p.differ.Run(listings, settled, inspect, known) })
	stages.Go(func() error { return p.inspector.Run(ctx, inspect, known, outcomes, settled) })
	stages.Go(func() error { return p.dispatcher.Run(outcomes) })
	return stages.Wait()
}

// Subscribe adds a subscriber, before or while the pipeline runs. It gets every
// event published after Subscribe has returned. It never blocks. It returns an
// error if an option is bad, and [ErrStopped] once Run has returned.
func (p *Pipeline) Subscribe(o SubscribeOptions) (*Subscription, error) {
	return p.dispatcher.Subscribe(o)
}

// Epoch names the sequence numbers of this pipeline's events: those of another
// pipeline, or of another process, have another epoch.
func (p *Pipeline) Epoch() string { return p.dispatcher.Epoch() }

// Cache returns the statuses of all pods. It is kept after Run has returned,
// but not written any more.
func (p *Pipeline) Cache() *Cache { return p.cache }

// RequestReinspect has the pod inspected anew at the next relist, whether or
// not it changed; if it did not, its subscribers get a PodSync. It never
// blocks. A pod that the next relist does not show is not waited for.
func (p *Pipeline) RequestReinspect(uid PodUID) { p.differ.RequestReinspect(uid) }

// Healthy reports whether the last successful relist began less than
// Options.RelistThreshold ago, and if not, why. The meaning is the kubelet's:
// it speaks of the runtime's lists, not of single pods. It does not block.
func (p *Pipeline) Healthy() (bool, error) {
	last := p.lister.Last()
	if last.Success.IsZero() {
		return false, because("pleg has yet to be successful", last.Err)
	}
	if elapsed := time.Since(last.Success); elapsed > p.threshold {
		return false, because(fmt.Sprintf("pleg was last seen active %v ago; threshold is %v", elapsed, p.threshold), last.Err)
	}
	return true, nil
}

func because(what string, err error) error {
	if err == nil {
		return errors.New(what)
	}
	return fmt.Errorf("%s: %w", what, err)
}
