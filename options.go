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
	DefaultInspectors      = 8
	DefaultMaxQuarantine   = 5 * time.Minute

	DefaultRelistPeriodWithEvents = 10 * time.Second

	DefaultHistory = 8192
)

const (
	// hungAfter is the age at which an inspection counts as hung, if one that began later
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
	// EventsAuto uses the event stream if the runtime has one.
	EventsAuto EventsMode = "auto"
	// EventsRequire uses the event stream. If the runtime has none, Run returns an
	// error.
	EventsRequire EventsMode = "require"
)

// Options configure a [Pipeline]. Only Runtime is required.
type Options struct {
	// Runtime lists and inspects the pods.
	Runtime pleg.Runtime
	// RelistPeriod is the time from the end of one list of all pods to the start of
	// the next. A list for a request or a hint begins at once, but if such a list
	// ended less than RelistPeriod ago (or a second, if that is shorter), then after
	// that time. If zero, [DefaultRelistPeriod].
	RelistPeriod time.Duration
	// RelistThreshold is the age of the last successful list at which
	// [Pipeline.Healthy] returns false. If zero, [DefaultRelistThreshold].
	RelistThreshold time.Duration
	// Events says whether CRI events are used as hints, for which Runtime is a
	// [pleg.EventWatcher]. With them a change is known within milliseconds, and all pods are
	// listed once per RelistPeriodWithEvents. If empty, [EventsOff]: if a process opens the
	// stream and then stops reading, because of SIGSTOP or a lack of CPU,
	// containerd blocks after about 250 unread events, and no pod starts any more.
	Events EventsMode
	// RelistPeriodWithEvents is the relist period while the event stream is up, if it is longer
	// than RelistPeriod: at worst a change is known after that time. It is at most a third of
	// RelistThreshold. If zero, [DefaultRelistPeriodWithEvents].
	RelistPeriodWithEvents time.Duration
	// ListTimeout ends a list that takes longer. If zero, [DefaultListTimeout].
	ListTimeout time.Duration
	// Inspectors is the greatest number of pods inspected at once, which bounds the load on the
	// runtime. As many again may hang: an inspection hangs if it is older than a second and one
	// that began later has ended in at most half its age. While all places are taken and nothing
	// has ended for a second, one more begins. If zero, [DefaultInspectors].
	Inspectors int
	// InspectTimeout ends an inspection that takes longer. If zero,
	// [DefaultInspectTimeout].
	InspectTimeout time.Duration
	// MaxQuarantine is the longest wait of a quarantined pod: one whose inspection hung, or
	// failed after a second or more. After a hang the wait doubles each time, from RelistPeriod,
	// and so does the timeout of the retry, from 10 s. A request for the pod ends the wait.
	// If zero, [DefaultMaxQuarantine]; if at most RelistPeriod, or negative, a pod is inspected
	// at every relist.
	MaxQuarantine time.Duration
	// History is the number of events in the log, about 300 bytes each: as far as that, a
	// subscriber may be behind or resume without a Gap. If zero, [DefaultHistory]; if
	// negative, as many as the channel of the kubelet holds, 1000.
	History int
	// LookupRemoved lets [Pipeline.Lookup] find containers that were removed before its first call,
	// as its index is kept from the start. That costs what the index costs: about 110 bytes for
	// each container, and the last statuses of at most 1024 containers that were removed in the
	// last five minutes.
	LookupRemoved bool
	// Store is written beside the pipeline's own cache. If nil, there is none.
	Store Store
	// OmitInferredStarts leaves out the start of a container that is first seen exited, as the
	// kubelet does. Otherwise such a container is told as started, if its status says when it
	// was, and then as died: so every container that a list shows is told.
	OmitInferredStarts bool
	// Logger gets what an operator needs to know, from a goroutine that may wait: while
	// its handler blocks, up to 1024 records wait, and further ones are counted. So is one at
	// which it panics. If nil, nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics until Run returns. If nil, they are not registered.
	Registerer prometheus.Registerer
	// KubeletMetricNames uses the kubelet's exact names for the metrics that the
	// kubelet has too, so that its dashboards and alerts work.
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
