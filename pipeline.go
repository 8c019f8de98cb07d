package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/stage/lister"
)

// Defaults of [Options]. Those with a counterpart in the kubelet (v1.36) are
// its own.
const (
	DefaultRelistPeriod    = time.Second
	DefaultRelistThreshold = 3 * time.Minute
	DefaultRetryPeriod     = 200 * time.Millisecond
	DefaultListTimeout     = 2 * time.Minute
	DefaultInspectTimeout  = 2 * time.Minute
	DefaultInspectors      = 8
	DefaultHungAfter       = time.Second
	DefaultMaxQuarantine   = 5 * time.Minute

	DefaultRelistPeriodWithEvents    = 5 * time.Minute
	DefaultRelistThresholdWithEvents = 10 * time.Minute
	DefaultKeepRemoved               = 30 * time.Second

	DefaultHistory   = 8192
	DefaultSlowAfter = 30 * time.Second
)

// EventsMode says what to do with the runtime's stream of container events.
type EventsMode string

const (
	// EventsOff leaves the stream alone; pods are found by relisting.
	EventsOff EventsMode = "off"
	// EventsAuto follows the stream if the runtime has one.
	EventsAuto EventsMode = "auto"
	// EventsRequire ends Run with an error if the runtime has none.
	EventsRequire EventsMode = "require"
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
	// RetryPeriod is the time from the end of a list that found no runtime to ask
	// ([pleg.ErrUnavailable]) to the next list, so that what happened meanwhile is
	// known that soon after the runtime's return. Where RelistPeriod is shorter,
	// that holds. If zero, [DefaultRetryPeriod].
	RetryPeriod time.Duration
	// Events follows the runtime's container events, so that a change is known
	// within milliseconds and all pods are listed but every
	// RelistPeriodWithEvents. If empty, [EventsOff]: a process that follows the
	// stream and then stops reading, because it is stopped by SIGSTOP or starved
	// of CPU, holds up containerd itself, and with it the start of every pod, as
	// soon as some 250 events are unread. It takes a Runtime that is an
	// [EventWatcher].
	Events EventsMode
	// RelistPeriodWithEvents and RelistThresholdWithEvents stand in for
	// RelistPeriod and RelistThreshold while the stream is up and announces what
	// the lists find. If zero, [DefaultRelistPeriodWithEvents] and
	// [DefaultRelistThresholdWithEvents]. A runtime that stands still ends the stream
	// (package cri: within 20 s), so that RelistThreshold holds.
	RelistPeriodWithEvents    time.Duration
	RelistThresholdWithEvents time.Duration
	// KeepRemoved is for how long the final status of a removed container can
	// be had from [Cache.GetRemoved]. If zero, [DefaultKeepRemoved].
	KeepRemoved time.Duration
	// ListTimeout ends a list that takes longer. If zero, [DefaultListTimeout].
	ListTimeout time.Duration
	// Inspectors is the greatest number of pods inspected at once, and so a
	// bound on the load on the runtime; as many single pods may be relisted
	// beside them. If zero, [DefaultInspectors].
	Inspectors int
	// FixedWidth always uses all inspectors. Otherwise fewer inspect while the
	// runtime takes longer for each the more there are.
	FixedWidth bool
	// InspectTimeout ends an inspection that takes longer. If zero,
	// [DefaultInspectTimeout].
	InspectTimeout time.Duration
	// HungAfter is the age at which an inspection counts as hung. At most half
	// of the inspectors are left to hung pods: when one more hangs, one of them
	// is cancelled, which counts as a failed inspection. A runtime whose
	// inspections take as long as this without hanging wants a longer one. With
	// one inspector nothing is cancelled before InspectTimeout. If zero,
	// [DefaultHungAfter], but no longer than InspectTimeout.
	HungAfter time.Duration
	// MaxQuarantine is the longest wait of a pod in quarantine. A pod whose
	// inspection has hung is inspected again at the next relist, as after any
	// failure, then after a wait of RelistPeriod that doubles each time it hangs
	// again, and only while no other pod waits for an inspector. If zero,
	// [DefaultMaxQuarantine]; if no longer than RelistPeriod, it is inspected at
	// every relist.
	MaxQuarantine time.Duration
	// History is the number of events kept for subscribers that resume, some
	// 200 bytes each. If zero, [DefaultHistory].
	History int
	// SlowAfter is for how long a subscriber may leave an event unread before
	// that is logged, once. If zero, [DefaultSlowAfter].
	SlowAfter time.Duration
	// Store is written beside the pipeline's own cache. If nil, none is.
	Store Store
	// DeliverAfterFailures is the number of failed inspections of a pod after
	// which subscribers get what the list knows of it, marked as uninspected.
	// If zero, never, as in the kubelet: a pod whose inspection fails for ever
	// is silent for ever.
	DeliverAfterFailures int
	// Logger gets what an operator should know. If nil, nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics. If nil, they are not registered.
	Registerer prometheus.Registerer
	// KubeletMetricNames gives the metrics that the kubelet has too its exact
	// names, so that dashboards and alerts made for it work.
	KubeletMetricNames bool
}

// Pipeline is the stages and the cache. Create it with [New].
type Pipeline struct {
	cache    *cache.Cache
	degraded Degraded // the runtime, or nil
	running  atomic.Bool

	lister     *lister.Lister
	hinter     *hinter.Hinter
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
	p := &Pipeline{cache: cache.New(o.KeepRemoved)}
	p.degraded, _ = o.Runtime.(Degraded)
	statuses := stores{p.cache, o.Store}
	var errs [5]error
	p.lister, errs[0] = lister.New(lister.Options{
		Runtime: o.Runtime, RelistPeriod: o.RelistPeriod, RelistThreshold: o.RelistThreshold, RetryPeriod: o.RetryPeriod,
		RelistPeriodWithEvents: o.RelistPeriodWithEvents, RelistThresholdWithEvents: o.RelistThresholdWithEvents,
		ListTimeout: o.ListTimeout, Logger: o.Logger, Metrics: metrics,
	})
	p.hinter, errs[1] = hinter.New(o.hinter(p.lister, metrics))
	p.differ, errs[2] = differ.New(differ.Options{
		Cache: statuses, Retry: p.lister.Retry, Doubt: p.lister.SetDoubt, DeliverAfterFailures: o.DeliverAfterFailures,
		RelistPeriod: o.RelistPeriod, MaxQuarantine: o.MaxQuarantine,
		Logger: o.Logger, Metrics: metrics,
	})
	p.inspector, errs[3] = inspector.New(inspector.Options{
		Runtime: o.Runtime, Cache: statuses, Inspectors: o.Inspectors, FixedWidth: o.FixedWidth,
		InspectTimeout: o.InspectTimeout, HungAfter: o.HungAfter,
		Logger: o.Logger, Metrics: metrics,
	})
	p.dispatcher, errs[4] = dispatcher.New(dispatcher.Options{
		History: o.History, SlowAfter: o.SlowAfter, Logger: o.Logger, Metrics: metrics,
	})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("new pipeline: %w", err)
	}
	return p, nil
}

func (o *Options) hinter(l *lister.Lister, metrics instrument.Registry) hinter.Options {
	h := hinter.Options{
		Required: o.Events == EventsRequire, Lister: l, Relists: o.Inspectors, ListTimeout: o.ListTimeout,
		Logger: o.Logger, Metrics: metrics,
	}
	h.Pods, _ = o.Runtime.(pleg.PodLister)
	if o.Events != EventsOff {
		h.Events, _ = o.Runtime.(pleg.EventWatcher)
	}
	return h
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
		{"RetryPeriod", &o.RetryPeriod, DefaultRetryPeriod},
		{"RelistPeriodWithEvents", &o.RelistPeriodWithEvents, DefaultRelistPeriodWithEvents},
		{"RelistThresholdWithEvents", &o.RelistThresholdWithEvents, DefaultRelistThresholdWithEvents},
		{"KeepRemoved", &o.KeepRemoved, DefaultKeepRemoved},
		{"ListTimeout", &o.ListTimeout, DefaultListTimeout},
		{"InspectTimeout", &o.InspectTimeout, DefaultInspectTimeout},
		{"HungAfter", &o.HungAfter, min(DefaultHungAfter, cmp.Or(max(o.InspectTimeout, 0), DefaultInspectTimeout))},
		{"MaxQuarantine", &o.MaxQuarantine, DefaultMaxQuarantine},
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
		{"DeliverAfterFailures", &o.DeliverAfterFailures, 0},
	} {
		if *n.value < 0 {
			return fmt.Errorf("new pipeline: Options.%s must be positive, got %d", n.name, *n.value)
		}
		if *n.value == 0 {
			*n.value = n.def
		}
	}
	switch _, watches := o.Runtime.(pleg.EventWatcher); {
	case o.Events == "":
		o.Events = EventsOff
	case o.Events == EventsRequire && !watches:
		return errors.New("new pipeline: Options.Events is require, but Options.Runtime is no EventWatcher")
	case o.Events != EventsOff && o.Events != EventsAuto && o.Events != EventsRequire:
		return fmt.Errorf("new pipeline: Options.Events must be off, auto or require, got %q", o.Events)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Run runs the stages until ctx ends, and then returns the cause of ctx. What
// the runtime fails at is retried and no error of Run, but that it has no
// events while Options.Events requires them. When Run returns, no goroutine is
// left and every subscriber's channel is closed. A pipeline runs once; a second
// call is an error.
func (p *Pipeline) Run(ctx context.Context) error {
	if p.running.Swap(true) {
		return errors.New("run pipeline: it has been run before: make a new one")
	}
	// Unbuffered but for one: what waits, waits in a stage's queue, where it is
	// bounded and seen in a metric.
	listings := make(chan stage.Listing)
	observations := make(chan stage.Observation)
	inspect := make(chan stage.Change)
	retry := make(chan stage.Change)
	known := make(chan stage.Change)
	outcomes := make(chan stage.Outcome, stage.OutcomeBuffer)
	settled := make(chan stage.Settled)
	// Only the two sources and the runtime calls end with ctx. The other stages
	// end when the one before them has closed its channel.
	stages, ctx := errgroup.WithContext(ctx)
	stages.Go(func() error { return p.lister.Run(ctx, listings) })
	stages.Go(func() error { return p.hinter.Run(ctx, observations) })
	stages.Go(func() error { return p.differ.Run(listings, observations, settled, inspect, retry, known) })
	stages.Go(func() error { return p.inspector.Run(ctx, inspect, retry, known, outcomes, settled) })
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
// not it changed, and though it may be in quarantine; if it did not change, its
// subscribers get a PodSync. It never blocks. A pod that the next relist does
// not show is not waited for. While a stream of events is up, that relist comes
// within Options.RelistPeriod.
func (p *Pipeline) RequestReinspect(uid PodUID) { p.differ.RequestReinspect(uid) }

// RequestRelist has one pod listed, and inspected if it changed, without waiting
// for the next relist. It never blocks; requests of the same pod that wait are
// served by one list. If Runtime is no [PodLister], all pods are listed.
// A pod in quarantine is inspected all the same.
func (p *Pipeline) RequestRelist(uid PodUID) {
	p.differ.RequestRetry(uid)
	p.hinter.RequestRelist(uid)
}

// Quarantined returns the pods whose last inspection hung, in the order in which
// they are tried again (Options.MaxQuarantine). It does not block.
func (p *Pipeline) Quarantined() []Quarantined { return slices.Clone(p.differ.Quarantined()) }

// Healthy reports whether the last successful relist began less than
// Options.RelistThreshold ago, and if not, why. The meaning is the kubelet's:
// it speaks of the runtime's lists, not of single pods. While a stream of events
// is up and relied on, Options.RelistThresholdWithEvents holds. An error beside
// true tells of lists that work in a roundabout way, if Runtime is [Degraded].
// It does not block.
func (p *Pipeline) Healthy() (bool, error) {
	ok, err := p.lister.Healthy()
	if ok && p.degraded != nil {
		return true, p.degraded.Degraded()
	}
	return ok, err
}
