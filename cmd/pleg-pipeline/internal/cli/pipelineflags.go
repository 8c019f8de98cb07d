package cli

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// defaultDeliverAfter makes the program print events of a pod whose inspection
// keeps failing. The library, like the kubelet, by default never does.
const defaultDeliverAfter = 5

// pipelineFlags configure a pipeline and the client of its runtime.
type pipelineFlags struct {
	relistPeriod, relistThreshold time.Duration
	retryPeriod                   time.Duration
	listTimeout, inspectTimeout   time.Duration
	hungAfter, maxQuarantine      time.Duration
	inspectors, maxStatusCalls    int
	fixedWidth                    bool
	deliverAfter                  int
	events                        string
	relistPeriodWithEvents        time.Duration
	eventProbePeriod              time.Duration
	eventProbeTimeout             time.Duration
	keepRemoved                   time.Duration
	history                       int
	slowAfter                     time.Duration
	unaryLists                    bool
	kubeletNames                  bool
}

func (f *pipelineFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.relistPeriod, "relist-period", pipeline.DefaultRelistPeriod, "`TIME` from the end of one relist to the start of the next")
	flags.DurationVar(&f.relistThreshold, "relist-threshold", pipeline.DefaultRelistThreshold, "`AGE` of the last successful list at which /readyz fails")
	flags.DurationVar(&f.retryPeriod, "retry-period", pipeline.DefaultRetryPeriod, "`TIME` until the next relist while the runtime is unreachable, if shorter\nthan the relist period")
	flags.DurationVar(&f.listTimeout, "list-timeout", pipeline.DefaultListTimeout, "`TIME` after which a list call fails")
	flags.BoolVar(&f.unaryLists, "unary-lists", false, "do not stream lists, even if the runtime can")
	enumFlag(cmd, &f.events, "events", "", "follow the CRI events of the runtime, which announce changes within\nmilliseconds: off, auto (if the runtime has them) or require (fail if it has\nnone). While this process is stopped by SIGSTOP, following blocks containerd",
		string(pipeline.EventsOff), string(pipeline.EventsAuto), string(pipeline.EventsRequire))
	flags.DurationVar(&f.relistPeriodWithEvents, "relist-period-with-events", pipeline.DefaultRelistPeriodWithEvents, "longest `TIME` between two relists while CRI events are followed")
	flags.DurationVar(&f.eventProbePeriod, "event-probe-period", cri.DefaultEventProbePeriod, "`TIME` between two calls that check, while CRI events are followed, that the\nruntime still answers")
	flags.DurationVar(&f.eventProbeTimeout, "event-probe-timeout", cri.DefaultEventProbeTimeout, "`TIME` to answer such a call; after two unanswered calls the events are not\ntrusted")
	flags.IntVar(&f.inspectors, "inspectors", pipeline.DefaultInspectors, "greatest `NUMBER` of pods inspected at the same time")
	flags.BoolVar(&f.fixedWidth, "fixed-width", false, "do not inspect fewer pods at the same time when more would be slower")
	flags.DurationVar(&f.inspectTimeout, "inspect-timeout", pipeline.DefaultInspectTimeout, "`TIME` after which the inspection of a pod fails; it is then retried")
	flags.DurationVar(&f.hungAfter, "hung-after", pipeline.DefaultHungAfter, "`AGE` at which an inspection can count as hung; others then take its place")
	flags.DurationVar(&f.maxQuarantine, "max-quarantine", pipeline.DefaultMaxQuarantine, "longest `TIME` between two inspections of a pod whose inspections hang")
	flags.IntVar(&f.deliverAfter, "deliver-after-failures", defaultDeliverAfter, "`NUMBER` of failed inspections of a pod after which its events are printed\nfrom the list alone, marked as uninspected; 0 for never")
	flags.IntVar(&f.maxStatusCalls, "max-status-calls", cri.DefaultMaxStatusCalls, "greatest `NUMBER` of status calls to the runtime at the same time, for all\npods")
	flags.DurationVar(&f.keepRemoved, "keep-removed", pipeline.DefaultKeepRemoved, "`TIME` for which the last status of a removed container is kept")
	flags.IntVar(&f.history, "history", pipeline.DefaultHistory, "`NUMBER` of events kept for clients that resume, about 200 bytes each")
	flags.DurationVar(&f.slowAfter, "slow-after", pipeline.DefaultSlowAfter, "`TIME` after which an event that a client has not read is logged")
	flags.BoolVar(&f.kubeletNames, "kubelet-metric-names", false, "use the kubelet's names (kubelet_pleg_...) for metrics that it has too")
}

// addCalls adds only the flags that change the calls to the runtime; the others
// keep their defaults.
func (f *pipelineFlags) addCalls(cmd *cobra.Command) {
	all := &cobra.Command{}
	f.add(all)
	for _, name := range []string{
		"relist-period", "retry-period", "list-timeout", "unary-lists", "events", "relist-period-with-events",
		"event-probe-period", "event-probe-timeout", "inspectors", "fixed-width", "inspect-timeout", "max-status-calls",
	} {
		cmd.Flags().AddFlag(all.Flags().Lookup(name))
	}
}

// validate checks what the types of the flags do not.
func (f *pipelineFlags) validate() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"relist-period", f.relistPeriod},
		{"relist-threshold", f.relistThreshold},
		{"retry-period", f.retryPeriod},
		{"list-timeout", f.listTimeout},
		{"relist-period-with-events", f.relistPeriodWithEvents},
		{"event-probe-period", f.eventProbePeriod},
		{"event-probe-timeout", f.eventProbeTimeout},
		{"inspect-timeout", f.inspectTimeout},
		{"hung-after", f.hungAfter},
		{"max-quarantine", f.maxQuarantine},
		{"keep-removed", f.keepRemoved},
		{"slow-after", f.slowAfter},
	} {
		if d.value <= 0 {
			return fmt.Errorf("--%s must be longer than 0, got %v", d.flag, d.value)
		}
	}
	for _, n := range []struct {
		flag         string
		value, least int
	}{
		{"inspectors", f.inspectors, 1},
		{"deliver-after-failures", f.deliverAfter, 0},
		{"max-status-calls", f.maxStatusCalls, 1},
		{"history", f.history, 1},
	} {
		if n.value < n.least {
			return fmt.Errorf("--%s must be at least %d, got %d", n.flag, n.least, n.value)
		}
	}
	if f.relistThreshold <= f.relistPeriod {
		return fmt.Errorf("--relist-threshold (%v) must be longer than --relist-period (%v)", f.relistThreshold, f.relistPeriod)
	}
	return nil
}

// thresholdWithEvents leaves time for one failed list.
func (f *pipelineFlags) thresholdWithEvents() time.Duration {
	return max(pipeline.DefaultRelistThresholdWithEvents, 2*f.relistPeriodWithEvents)
}

func (f *pipelineFlags) clientOptions(log *slog.Logger, registry prometheus.Registerer) cri.Options {
	return cri.Options{
		ListTimeout:        f.listTimeout,
		StatusTimeout:      f.inspectTimeout,
		MaxStatusCalls:     f.maxStatusCalls,
		UnaryLists:         f.unaryLists,
		EventProbePeriod:   f.eventProbePeriod,
		EventProbeTimeout:  f.eventProbeTimeout,
		Logger:             log,
		Registerer:         registry,
		KubeletMetricNames: f.kubeletNames,
	}
}

func (f *pipelineFlags) options(runtime pipeline.Runtime, log *slog.Logger, registry prometheus.Registerer) pipeline.Options {
	return pipeline.Options{
		Runtime:                   runtime,
		RelistPeriod:              f.relistPeriod,
		RelistThreshold:           f.relistThreshold,
		RetryPeriod:               f.retryPeriod,
		Events:                    pipeline.EventsMode(f.events),
		RelistPeriodWithEvents:    f.relistPeriodWithEvents,
		RelistThresholdWithEvents: f.thresholdWithEvents(),
		KeepRemoved:               f.keepRemoved,
		ListTimeout:               f.listTimeout,
		Inspectors:                f.inspectors,
		FixedWidth:                f.fixedWidth,
		InspectTimeout:            f.inspectTimeout,
		HungAfter:                 f.hungAfter,
		MaxQuarantine:             f.maxQuarantine,
		History:                   f.history,
		SlowAfter:                 f.slowAfter,
		DeliverAfterFailures:      f.deliverAfter,
		Logger:                    log,
		Registerer:                registry,
		KubeletMetricNames:        f.kubeletNames,
	}
}
