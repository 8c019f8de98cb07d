package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// howFound is part of the help of every command that talks to a runtime.
const howFound = `The runtime is found as crictl finds it; the first of these counts:
  1. --runtime-endpoint
  2. the environment variable CONTAINER_RUNTIME_ENDPOINT
  3. runtime-endpoint in the file named by --config or by the environment
     variable CRI_CONFIG_FILE, otherwise in /etc/crictl.yaml
  4. the well-known sockets of containerd, CRI-O, cri-dockerd and k3s`

// howReplayed follows howFound for a command that takes a recording too.
const howReplayed = `
replay:FILE in the place of a socket is the recording in FILE, see
"pleg-pipeline record --help".`

// runtimeFlags say which runtime a command talks to.
type runtimeFlags struct {
	endpoint, config string
	replaySpeed      float64
	simulation       simulation
	// wait means that the runtime may be missing or not answer yet.
	wait bool
}

func (f *runtimeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.endpoint, "runtime-endpoint", "r", "", "`ENDPOINT` of the runtime, such as unix:///run/containerd/containerd.sock,\nor replay:FILE")
	flags.Float64Var(&f.replaySpeed, "replay-speed", 1, "play a recording that many `TIMES` as fast as it was made")
	flags.StringVar(&f.config, "config", "", "crictl configuration `FILE` that may name the endpoint")
	flags.IntVar(&f.simulation.pods, "simulate", 0, "simulate a runtime with this number of `PODS` in place of a real one")
	flags.Lookup("simulate").NoOptDefVal = strconv.Itoa(defaultPods)
	f.simulation.addFlags(cmd)
}

// noArgs explains the error in "--simulate 50", which cobra reads as a flag without
// its optional value, and an argument.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := podArgs(cmd, args); err != nil {
		return err
	}
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", strings.Join(args, " "))
	}
	return nil
}

// podArgs accepts the names of pods.
func podArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && cmd.Flags().Changed("simulate") {
		if _, err := strconv.Atoi(args[0]); err == nil {
			return fmt.Errorf("the number of pods needs an equals sign: --simulate=%s", args[0])
		}
	}
	return nil
}

// given returns the flag that names a runtime, or "" if none does.
func (f *runtimeFlags) given(flags *pflag.FlagSet) string {
	for _, name := range []string{"runtime-endpoint", "config", "simulate"} {
		if flags.Changed(name) {
			return "--" + name
		}
	}
	return ""
}

func (f *runtimeFlags) validate(flags *pflag.FlagSet) error {
	// An empty value, such as that of a variable that is not set, is an error.
	if f.endpoint == "" && flags.Changed("runtime-endpoint") {
		return errors.New("--runtime-endpoint must not be empty")
	}
	if err := f.validateReplay(flags); err != nil {
		return err
	}
	if !flags.Changed("simulate") {
		for _, flag := range simulationFlags() {
			if flags.Changed(flag) {
				return fmt.Errorf("--%s needs --simulate", flag)
			}
		}
		return nil
	}
	if f.endpoint != "" || f.config != "" {
		return errors.New("--simulate cannot be combined with --runtime-endpoint or --config")
	}
	if f.simulation.pods < 1 || f.simulation.pods > maxPods {
		return fmt.Errorf("--simulate must be between 1 and %d, got %d", maxPods, f.simulation.pods)
	}
	return f.simulation.validate()
}

// use calls with for the simulated runtime, the recording, or the runtime that it
// finds.
func (f *runtimeFlags) use(ctx context.Context, p Process, out console, with func(context.Context, endpoint.Endpoint) error) error {
	if f.simulation.pods > 0 {
		out.say(ctx, "the runtime is simulated: %v", &f.simulation)
		return f.simulation.around(ctx, out.log, func(ctx context.Context, address string) error {
			return with(ctx, endpoint.Endpoint{Address: address, Source: "--simulate"})
		})
	}
	found, err := f.resolve(ctx, p)
	if f.wait && errors.Is(err, endpoint.ErrNone) {
		out.say(ctx, "waiting for a runtime: %v", err)
		found, err = f.awaitRuntime(ctx, p)
	}
	if errors.Is(err, endpoint.ErrNone) {
		return fmt.Errorf("%w\nname one with --runtime-endpoint, or try the program without a runtime: %s run --simulate", err, Name)
	}
	if err != nil {
		return err
	}
	if file, ok := found.Recording(); ok {
		return f.replay(ctx, out, file, with)
	}
	return with(ctx, found)
}

// awaitPeriod is the time between two looks for a runtime.
const awaitPeriod = time.Second

// awaitRuntime looks for a runtime until there is one or ctx ends.
func (f *runtimeFlags) awaitRuntime(ctx context.Context, p Process) (endpoint.Endpoint, error) {
	for {
		select {
		case <-time.After(awaitPeriod):
		case <-ctx.Done():
			return endpoint.Endpoint{}, context.Cause(ctx)
		}
		if found, err := f.resolve(ctx, p); !errors.Is(err, endpoint.ErrNone) {
			return found, err
		}
	}
}

func (f *runtimeFlags) resolve(ctx context.Context, p Process) (endpoint.Endpoint, error) {
	return endpoint.Resolver{
		Flag:          f.endpoint,
		Config:        f.config,
		Getenv:        p.Getenv,
		DefaultConfig: endpoint.DefaultConfig,
		WellKnown:     endpoint.WellKnown(),
	}.Resolve(ctx)
}

// connect returns a client of a runtime that has answered.
func connect(ctx context.Context, out console, from endpoint.Endpoint, o cri.Options) (*cri.Client, error) {
	client, err := cri.New(from.Address, o)
	if err != nil {
		return nil, fmt.Errorf("%w (from %s)", err, from.Source)
	}
	version, err := client.Check(ctx)
	if err != nil {
		return nil, errors.Join(unusable(err, from), client.Close())
	}
	out.say(ctx, "connected to %s %s at %s", view.Printable(version.RuntimeName), view.Printable(version.RuntimeVersion), from.Address)
	return client, nil
}

// unusable returns the error of a runtime that failed its check: where its address
// comes from, and what to do. The error of the call is long and technical and gets a
// line of its own.
func unusable(err error, from endpoint.Endpoint) error {
	why, detail := explain(err)
	return fmt.Errorf("%s%s\n  the address is from %s; name another one with --runtime-endpoint,\n  or try the program without a runtime: %s run --simulate",
		why, detail, from.Source, Name)
}

// explain returns why a runtime failed its check, and the error of the call as another
// line, if there is one.
func explain(err error) (why, detail string) {
	failed, ok := errors.AsType[*cri.ConnectError](err)
	if !ok {
		return err.Error(), ""
	}
	return fmt.Sprintf("check runtime at %s: %s", failed.Endpoint, failed.Reason), fmt.Sprintf("\n  cause: %v", failed.Err)
}

// defaultDeliverAfter makes the program print events of a pod whose inspection
// keeps failing. The library, like the kubelet, by default never does.
const defaultDeliverAfter = 5

// pipelineFlags configure a pipeline and the client of its runtime.
type pipelineFlags struct {
	pipeline.Options

	client cri.Options
	all    *pflag.FlagSet // also of a command that has only some of them
}

func (f *pipelineFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.all = flags
	flags.DurationVar(&f.RelistPeriod, "relist-period", pipeline.DefaultRelistPeriod, "`TIME` from the end of one relist to the start of the next")
	flags.DurationVar(&f.RelistThreshold, "relist-threshold", pipeline.DefaultRelistThreshold, "`AGE` of the last successful list at which /readyz fails")
	flags.DurationVar(&f.ListTimeout, "list-timeout", pipeline.DefaultListTimeout, "`TIME` after which a list call fails")
	flags.BoolVar(&f.client.UnaryLists, "unary-lists", false, "do not stream lists, even if the runtime can")
	enumFlag(cmd, (*string)(&f.Events), "events", "", "follow the CRI events of the runtime, which announce changes within\nmilliseconds: off, auto (if the runtime has them) or require (fail if it has\nnone). While this process is stopped by SIGSTOP, following blocks containerd",
		string(pipeline.EventsOff), string(pipeline.EventsAuto), string(pipeline.EventsRequire))
	flags.DurationVar(&f.RelistPeriodWithEvents, "relist-period-with-events", pipeline.DefaultRelistPeriodWithEvents, "`TIME` between two relists while CRI events are trusted")
	flags.DurationVar(&f.client.EventProbePeriod, "event-probe-period", cri.DefaultEventProbePeriod, "`TIME` between two calls that check, while CRI events are followed, that the\nruntime still answers")
	flags.DurationVar(&f.client.EventProbeTimeout, "event-probe-timeout", cri.DefaultEventProbeTimeout, "`TIME` to answer such a call; after two unanswered calls the events are not\ntrusted")
	flags.IntVar(&f.Inspectors, "inspectors", pipeline.DefaultInspectors, "greatest `NUMBER` of pods inspected at the same time")
	flags.DurationVar(&f.InspectTimeout, "inspect-timeout", pipeline.DefaultInspectTimeout, "`TIME` after which the inspection of a pod fails; it is then retried")
	flags.DurationVar(&f.MaxQuarantine, "max-quarantine", pipeline.DefaultMaxQuarantine, "longest `TIME` between two inspections of a pod whose inspections hang")
	flags.IntVar(&f.DeliverAfterFailures, "deliver-after-failures", defaultDeliverAfter, "`NUMBER` of failed inspections of a pod after which its events are printed\nfrom the list alone, marked as uninspected; 0 for never")
	flags.IntVar(&f.History, "history", pipeline.DefaultHistory, "`NUMBER` of events kept for clients that resume, about 200 bytes each")
	flags.BoolVar(&f.KubeletMetricNames, "kubelet-metric-names", false, "use the kubelet's names (kubelet_pleg_...) for metrics that it has too")
}

// addCalls adds only the flags that change the calls to the runtime; the others
// keep their defaults.
func (f *pipelineFlags) addCalls(cmd *cobra.Command) {
	all := &cobra.Command{}
	f.add(all)
	for _, name := range []string{
		"relist-period", "list-timeout", "unary-lists", "events", "relist-period-with-events",
		"event-probe-period", "event-probe-timeout", "inspectors", "inspect-timeout",
	} {
		cmd.Flags().AddFlag(all.Flags().Lookup(name))
	}
}

// validate checks what the types of the flags do not.
func (f *pipelineFlags) validate() error {
	for _, name := range []string{
		"relist-period", "relist-threshold", "list-timeout", "relist-period-with-events", "event-probe-period",
		"event-probe-timeout", "inspect-timeout", "max-quarantine",
	} {
		if d, err := f.all.GetDuration(name); err != nil || d <= 0 {
			return fmt.Errorf("--%s must be longer than 0, got %v", name, d)
		}
	}
	for _, flag := range []struct {
		name  string
		least int
	}{{"inspectors", 1}, {"deliver-after-failures", 0}, {"history", 1}} {
		if n, err := f.all.GetInt(flag.name); err != nil || n < flag.least {
			return fmt.Errorf("--%s must be at least %d, got %d", flag.name, flag.least, n)
		}
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
