package cli

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// shortestPeriod keeps a typing error, such as 1ms for 1m, from loading the runtime.
const shortestPeriod = 10 * time.Millisecond

type pipelineFlags struct {
	pipeline.Options

	client cri.Options
	all    *pflag.FlagSet // all flags, even if the command offers only some of them
}

func (f *pipelineFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.all = flags
	flags.DurationVar(&f.RelistPeriod, "relist-period", pipeline.DefaultRelistPeriod, "`TIME` from the end of one relist to the start of the next")
	flags.DurationVar(&f.RelistThreshold, "relist-threshold", pipeline.DefaultRelistThreshold, "`AGE` of the last successful list at which /readyz fails")
	flags.DurationVar(&f.ListTimeout, "list-timeout", pipeline.DefaultListTimeout, "`TIME` after which a list call fails")
	enumFlag(cmd, (*string)(&f.Events), "events", "", "follow the CRI events of the runtime, which announce changes within\nmilliseconds: off, auto (if the runtime has them) or require (fail if it has\nnone). While this process is stopped by SIGSTOP, following blocks containerd",
		string(pipeline.EventsOff), string(pipeline.EventsAuto), string(pipeline.EventsRequire))
	flags.DurationVar(&f.RelistPeriodWithEvents, "relist-period-with-events", pipeline.DefaultRelistPeriodWithEvents, "`TIME` between two relists while the event stream is up, at most a third of\n--relist-threshold")
	flags.IntVar(&f.Inspectors, "inspectors", pipeline.DefaultInspectors, "greatest `NUMBER` of pods inspected at the same time")
	flags.DurationVar(&f.InspectTimeout, "inspect-timeout", pipeline.DefaultInspectTimeout, "`TIME` after which the inspection of a pod fails; it is then retried")
	flags.DurationVar(&f.MaxQuarantine, "max-quarantine", pipeline.DefaultMaxQuarantine, "longest `TIME` between two inspections of a pod whose inspections hang")
	flags.IntVar(&f.History, "history", pipeline.DefaultHistory, "`NUMBER` of events kept for clients that resume, about 300 bytes each")
	flags.BoolVar(&f.KubeletMetricNames, "kubelet-metric-names", false, "use the kubelet's names (kubelet_pleg_...) for metrics that it has too")
	tuning(cmd, "inspectors", "relist-threshold", "list-timeout", "relist-period-with-events", "inspect-timeout",
		"max-quarantine", "history")
}

// addCalls adds only the flags that change the calls to the runtime; the others
// keep their defaults.
func (f *pipelineFlags) addCalls(cmd *cobra.Command) {
	all := &cobra.Command{}
	f.add(all)
	for _, name := range []string{
		"relist-period", "list-timeout", "events", "relist-period-with-events",
		"inspectors", "inspect-timeout",
	} {
		cmd.Flags().AddFlag(all.Flags().Lookup(name))
	}
}

func (f *pipelineFlags) validate() error {
	var times []string
	f.all.VisitAll(func(flag *pflag.Flag) {
		if flag.Value.Type() == "duration" {
			times = append(times, flag.Name)
		}
	})
	err := cmp.Or(
		longerThanZero(f.all, times...),
		between(f.all, "inspectors", 1, anyNumber),
		between(f.all, "history", 1, anyNumber),
	)
	if err != nil {
		return err
	}
	if f.RelistPeriod < shortestPeriod || f.RelistPeriodWithEvents < shortestPeriod {
		return fmt.Errorf("--relist-period and --relist-period-with-events must be %v or longer: each relist is work for the runtime", shortestPeriod)
	}
	if f.RelistThreshold <= f.RelistPeriod {
		return fmt.Errorf("--relist-threshold (%v) must be longer than --relist-period (%v)", f.RelistThreshold, f.RelistPeriod)
	}
	return nil
}

func (f *pipelineFlags) clientOptions(log *slog.Logger, registry prometheus.Registerer) cri.Options {
	o := f.client
	o.ListTimeout, o.StatusTimeout = f.ListTimeout, f.InspectTimeout
	o.Logger, o.Registerer, o.KubeletMetricNames = log, registry, f.KubeletMetricNames
	return o
}

func (f *pipelineFlags) options(runtime pleg.Runtime, log *slog.Logger, registry prometheus.Registerer) pipeline.Options {
	o := f.Options
	o.Runtime, o.Logger, o.Registerer = runtime, log, registry
	return o
}

// kept is a registerer of metrics that are read once more at the end, for the summary.
type kept struct{ prometheus.Registerer }

// Unregister implements [prometheus.Registerer].
func (kept) Unregister(prometheus.Collector) bool { return false }
