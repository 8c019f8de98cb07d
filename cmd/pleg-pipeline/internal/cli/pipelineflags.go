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

// forTests is set by the linker (tests/kit/process). The program then also accepts flags that
// change the constants of a rule. An operator needs none of them.
var forTests string

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
	f.RelistThreshold, f.RelistPeriodWithEvents, f.History = pipeline.DefaultRelistThreshold, pipeline.DefaultRelistPeriodWithEvents, pipeline.DefaultHistory
	if forTests != "" {
		flags.DurationVar(&f.RelistThreshold, "relist-threshold", f.RelistThreshold, "")
		flags.DurationVar(&f.RelistPeriodWithEvents, "relist-period-with-events", f.RelistPeriodWithEvents, "")
		flags.IntVar(&f.History, "history", f.History, "")
		tuning(cmd, "relist-threshold", "relist-period-with-events", "history")
	}
	flags.DurationVar(&f.ListTimeout, "list-timeout", pipeline.DefaultListTimeout, "`TIME` after which a list call fails")
	enumFlag(cmd, (*string)(&f.Events), "events", "", "follow the CRI events of the runtime, which announce changes within\nmilliseconds: off or auto (if the runtime has them). While this process is\nstopped by SIGSTOP, following blocks containerd",
		string(pipeline.EventsOff), string(pipeline.EventsAuto))
	flags.IntVar(&f.Inspectors, "inspectors", pipeline.DefaultInspectors, "greatest `NUMBER` of pods inspected at the same time")
	flags.DurationVar(&f.InspectTimeout, "inspect-timeout", pipeline.DefaultInspectTimeout, "`TIME` after which the inspection of a pod fails; it is then retried")
	tuning(cmd, "inspectors", "list-timeout", "inspect-timeout")
}

// addCalls adds only the flags that change the calls to the runtime; the others
// keep their defaults.
func (f *pipelineFlags) addCalls(cmd *cobra.Command) {
	all := &cobra.Command{}
	f.add(all)
	for _, name := range []string{
		"relist-period", "list-timeout", "events", "inspectors", "inspect-timeout",
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
	)
	if err != nil {
		return err
	}
	if f.RelistPeriod < shortestPeriod {
		return fmt.Errorf("--relist-period must be %v or longer: each relist is work for the runtime", shortestPeriod)
	}
	if f.RelistThreshold <= f.RelistPeriod {
		return fmt.Errorf("--relist-period (%v) must be shorter than %v: without a list for that long the node is not healthy", f.RelistPeriod, f.RelistThreshold)
	}
	return nil
}

func (f *pipelineFlags) clientOptions(log *slog.Logger, registry prometheus.Registerer) cri.Options {
	o := f.client
	o.ListTimeout, o.StatusTimeout = f.ListTimeout, f.InspectTimeout
	o.Logger, o.Registerer = log, registry
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
