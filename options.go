package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Defaults of [Options]. Where the kubelet (v1.37) has the
// same setting, its value is used.
const (
	DefaultRelistPeriod    = time.Second
	DefaultRelistThreshold = 3 * time.Minute
	DefaultListTimeout     = 2 * time.Minute
	DefaultInspectTimeout  = 2 * time.Minute
	DefaultInspectors      = 16
	DefaultMaxQuarantine   = 5 * time.Minute

	DefaultRelistPeriodWithEvents = 10 * time.Second

	DefaultHistory = 8192
)

const (
	// hungAfter is the age at which an inspection counts as hung, if an inspection that began later
	// has already ended. Healthy runtimes answer within milliseconds.
	hungAfter = time.Second
	// minHistory is the capacity of the kubelet's event channel (v1.37).
	minHistory = 1000
	// slowAfter is how long a subscriber may leave an event unread before that is logged.
	slowAfter = 30 * time.Second
)

// EventsMode says how to use the runtime's CRI events.
type EventsMode string

const (
	// EventsOff does not open the event stream; pods are found by relisting.
	EventsOff EventsMode = "off"
	// EventsAuto uses the event stream if the runtime supports it, and otherwise only relists.
	EventsAuto EventsMode = "auto"
	// EventsRequire uses the event stream. If Options.Runtime is not a [pleg.EventWatcher], New
	// returns an error; if the runtime sends no events, Run does.
	EventsRequire EventsMode = "require"
)

// Options configure a [Pipeline]. Only Runtime is required. A negative number or time is an error,
// unless the comment of the field defines it.
type Options struct {
	// Runtime lists and inspects the pods.
	Runtime pleg.Runtime
	// RelistPeriod is the time from the end of one list of all pods to the start of the next. A
	// list of all pods for a request or a hint begins at once, but between two such lists there is
	// a pause of RelistPeriod, or of a second if that is shorter. If zero, [DefaultRelistPeriod].
	RelistPeriod time.Duration
	// RelistThreshold is the age of the last successful list at which
	// [Pipeline.Healthy] returns false. If zero, [DefaultRelistThreshold].
	RelistThreshold time.Duration
	// Events says whether CRI events are used as hints, so that a change is known within
	// milliseconds. If empty, [EventsOff], because a process that opens the stream and stops
	// reading it (SIGSTOP, no CPU) blocks containerd after about 250 events: then no pod starts.
	Events EventsMode
	// RelistPeriodWithEvents is the relist period while the event stream is up: a change that no
	// event announced is known after this time. A value below RelistPeriod is raised to it, a value
	// above a third of RelistThreshold is lowered. If zero, [DefaultRelistPeriodWithEvents].
	RelistPeriodWithEvents time.Duration
	// ListTimeout ends a list that takes longer. If zero, [DefaultListTimeout].
	ListTimeout time.Duration
	// Inspectors is the greatest number of pods inspected at once, which bounds the load on the
	// runtime. As many inspections again may hang; see [pleg.Inspection]. If no inspection has
	// ended for a second and all slots are taken, one more begins. If zero, [DefaultInspectors].
	Inspectors int
	// InspectTimeout ends an inspection that takes longer. If zero,
	// [DefaultInspectTimeout].
	InspectTimeout time.Duration
	// MaxQuarantine is the longest wait for the next inspection of a pod whose last inspection
	// hung, or failed after a second or more; see [pleg.Quarantined]. If zero,
	// [DefaultMaxQuarantine]. If negative, or at most RelistPeriod, such a pod is inspected at
	// every relist. With fewer than four Inspectors, and the defaults, this wait is kept only for up to
	// 28 such pods.
	MaxQuarantine time.Duration
	// History is the number of events in the log, about 300 bytes each. A subscriber that is at
	// most this number of events behind gets no Gap. If zero, [DefaultHistory]; if negative,
	// 1000, the capacity of the kubelet's event channel.
	History int
	// Store is written beside the pipeline's own cache. If nil, there is none.
	Store Store
	// KubeletEvents reports exactly the events of the kubelet's PLEG, for a kubelet. If it is false,
	// the pipeline does more. A container that is first seen exited is reported as started and then
	// died, if its status says when it started. Each container starts, dies and is removed at most
	// once, also if its state is unknown meanwhile. A change that a list showed is reported, even if an
	// inspection of it failed. A pod whose status contradicts its list is inspected again. The first
	// list after a break is confirmed if it lacks every pod.
	KubeletEvents bool
	// Logger gets the messages for an operator. Its handler must not block: every stage logs, and
	// waits for it. If nil, nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics until Run returns. If nil, they are not registered.
	Registerer prometheus.Registerer
	// KubeletMetricNames uses the kubelet's exact names for the metrics that the kubelet exports
	// too, so that its dashboards and alerts work.
	KubeletMetricNames bool
}

func (o *Options) complete() error {
	if o.Runtime == nil {
		return errors.New("Options.Runtime is required: use cri.New or your own")
	}
	if err := cmp.Or(
		option.Default("RelistPeriod", &o.RelistPeriod, DefaultRelistPeriod),
		option.Default("RelistThreshold", &o.RelistThreshold, DefaultRelistThreshold),
		option.Default("RelistPeriodWithEvents", &o.RelistPeriodWithEvents, DefaultRelistPeriodWithEvents),
		option.Default("ListTimeout", &o.ListTimeout, DefaultListTimeout),
		option.Default("InspectTimeout", &o.InspectTimeout, DefaultInspectTimeout),
		option.Default("Inspectors", &o.Inspectors, DefaultInspectors),
	); err != nil {
		return err
	}
	o.RelistPeriodWithEvents = min(o.RelistPeriodWithEvents, o.RelistThreshold/3)
	option.OffOrDefault(&o.MaxQuarantine, DefaultMaxQuarantine, 1)
	option.OffOrDefault(&o.History, DefaultHistory, minHistory)
	switch _, watches := o.Runtime.(pleg.EventWatcher); {
	case o.Events == "":
		o.Events = EventsOff
	case o.Events == EventsRequire && !watches:
		return errors.New("Options.Events is require, but Options.Runtime is not an EventWatcher")
	case o.Events != EventsOff && o.Events != EventsAuto && o.Events != EventsRequire:
		return fmt.Errorf("Options.Events must be off, auto or require, got %q", o.Events)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
