package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

const doctorLong = `Find out why "PLEG is not healthy". The first line is the verdict, with the pod
and the call that cause it; the second line says what to do.

It watches the runtime and its node for ten seconds, as the daemon does all the
time: the lists and statuses of its pods, their shims, its clients and its disk. It
only reads. It also asks the daemon ("pleg-pipeline run --socket"), if there is one,
which knows the address of the runtime and how long a pod has been hanging. With
--runtime-endpoint or --config the daemon is not asked.

Exit codes: 0 if it found no problem, 3 if it found one, otherwise as for every
command. With --npd: 1 if it found one, 2 if it could not examine the node.
If it is interrupted, it prints what it has seen and exits with 0; with --npd: 2.

With --calls it measures the runtime instead, and prints a table for an issue. It
inspects all pods repeatedly; at least half of the time it waits.

With --fleet it asks no runtime: it ranks the nodes that publish on a NATS server
by the verdict of their agents, including nodes without an agent.

` + howFound + `
A recording cannot be examined; "top -r replay:FILE" shows the verdicts on one.`

const doctorExample = `  sudo pleg-pipeline doctor

  # wait for a problem that comes and goes
  while sudo pleg-pipeline doctor >report; do sleep 2; done

  sudo pleg-pipeline doctor --calls 1m

  pleg-pipeline doctor --fleet nats://nats.example:4222 --cluster prod

  pleg-pipeline doctor -o json | jq -r '.findings[].cause'`

type doctorCommand struct {
	process Process
	source  sourceFlags
	fleet   fleetFlags
	log     logFlags

	output               string
	timeout, callTimeout time.Duration
	calls                time.Duration
	npd                  bool
}

func newDoctor(p Process) *cobra.Command {
	return newCommand(&doctorCommand{process: p}, &cobra.Command{
		Use:     "doctor",
		Short:   "Find out why PLEG is not healthy",
		Long:    doctorLong,
		Example: doctorExample,
	})
}

func (c *doctorCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	enumFlag(cmd, &c.output, "output", "o", "format of the report", "text", "json")
	flags.DurationVar(&c.timeout, "timeout", 10*time.Second, "`TIME` for which the node is watched")
	flags.DurationVar(&c.callTimeout, "call-timeout", 5*time.Second, "with --calls: `TIME` after which a call has failed")
	flags.DurationVar(&c.calls, "calls", 0, "measure the runtime's calls for this `TIME` instead")
	flags.BoolVar(&c.npd, "npd", false, "print only the verdict and exit as a plugin of the node-problem-detector")
	c.source.add(cmd)
	c.fleet.add(cmd)
	flags.Lookup("runtime-endpoint").Usage = "`ENDPOINT` of the runtime, such as unix:///run/containerd/containerd.sock"
	c.log.addQuiet(cmd)
}

func (c *doctorCommand) validate(flags *pflag.FlagSet) error {
	if err := longerThanZero(flags, "timeout", "call-timeout"); err != nil {
		return err
	}
	if flags.Changed("calls") {
		if err := longerThanZero(flags, "calls"); err != nil {
			return err
		}
		if c.npd {
			return errors.New("--calls cannot be combined with --npd: it does not look for problems")
		}
	}
	if c.npd && flags.Changed("output") {
		return errors.New("--npd cannot be combined with --output: it prints one line")
	}
	if err := c.source.validate(flags); err != nil {
		return err
	}
	if c.fleet.given() && (c.npd || c.calls > 0) {
		return errors.New("--fleet cannot be combined with --npd or --calls: the agents of the nodes have examined them")
	}
	return c.fleet.validate(flags, &c.source)
}

func (c *doctorCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	err := c.look(ctx, out)
	switch _, printed := errors.AsType[exit](err); {
	case err == nil, printed && (c.npd || ctx.Err() == nil):
		return err
	case printed:
		return nil // as every command that a signal ends
	}
	return interrupted(ctx, out, err)
}

func (c *doctorCommand) look(ctx context.Context, out console) error {
	if c.fleet.given() {
		return c.examineFleet(ctx, out)
	}
	if c.calls > 0 {
		daemon, _ := c.askDaemon(ctx)
		return c.useRuntime(ctx, daemon, func(ctx context.Context, at endpoint.Endpoint) error {
			out.say(ctx, "measuring the calls of %s for %v", at.Address, c.calls)
			load, err := doctor.MeasureCalls(ctx, c.options(at), c.callTimeout, c.calls)
			if err != nil {
				return err
			}
			return printReport(c.process, c.output, load, load.Print, true)
		})
	}
	report, err := c.examine(ctx)
	if c.npd {
		return c.answerPlugin(report, cmp.Or(context.Cause(ctx), err))
	}
	if err != nil {
		return err
	}
	return c.print(report)
}

// examine examines the runtime. It asks the daemon for the runtime's address first, and afterwards
// again for current ages.
func (c *doctorCommand) examine(ctx context.Context) (report *doctor.Report, err error) {
	daemon, none := c.askDaemon(ctx)
	err = c.useRuntime(ctx, daemon, func(ctx context.Context, at endpoint.Endpoint) error {
		o := c.options(at)
		o.NoDaemon = none
		o.Ask = func(ctx context.Context) *doctor.Daemon {
			if daemon != nil && daemon.Silent == "" {
				daemon, _ = c.askDaemon(ctx)
			}
			return daemon
		}
		report = doctor.Examine(ctx, o)
		return nil
	})
	if !errors.Is(err, endpoint.ErrNone) {
		return report, err
	}
	var found []verdict.Finding
	if daemon == nil {
		found = append(found, verdict.Finding{
			Cause: verdict.RuntimeStopped, Severity: verdict.Problem, Summary: "no container runtime found", Evidence: err.Error(),
			Advice: "start the runtime, or name its socket with --runtime-endpoint",
		})
	}
	report = doctor.Judge(daemon, found...)
	report.NoDaemon = none
	return report, nil
}

// useRuntime calls fn with the runtime of the daemon, or else with the runtime that it finds. A
// recording is an error.
func (c *doctorCommand) useRuntime(ctx context.Context, daemon *doctor.Daemon, fn func(context.Context, endpoint.Endpoint) error) error {
	if at := daemon.Endpoint(); at != "" {
		return fn(ctx, endpoint.Endpoint{Address: at, Source: "the daemon"})
	}
	found, err := c.source.runtime.resolve(ctx, c.process)
	if err != nil {
		return err
	}
	if file, ok := found.Recording(); ok {
		return fmt.Errorf("doctor examines a running runtime and its node: it cannot examine the recording in %s; \"%s top -r %s%s\" shows the verdicts", file, Name, endpoint.ReplayScheme, file)
	}
	return fn(ctx, found)
}

func (c *doctorCommand) options(at endpoint.Endpoint) doctor.Options {
	return doctor.Options{
		Endpoint: at.Address, Source: at.Source, Watch: c.timeout, Pressure: c.process.Pressure, Host: c.process.host(at.Address),
	}
}

func (c *doctorCommand) examineFleet(ctx context.Context, out console) error {
	return c.fleet.use(ctx, out, true, func(ctx context.Context, s source) error {
		ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errNoServer)
		defer cancel()
		from := s.(fleetSource)
		nodes, err := from.nodes(ctx)
		if len(nodes) == 0 && err != nil {
			return err
		}
		used, limit, sizeErr := from.states.Size(ctx)
		ranked := doctor.Rank(nodes, time.Now())
		ranked.Fills(used, limit)
		return cmp.Or(err, sizeErr, c.print(ranked))
	})
}

func (c *doctorCommand) print(r interface {
	Print(w io.Writer, o doctor.TextOptions) error
	Healthy() bool
},
) error {
	options := doctor.TextOptions{Width: terminalWidth(c.process.Out), Color: c.process.colorWanted()}
	return printReport(c.process, c.output, r, func(w io.Writer) error { return r.Print(w, options) }, r.Healthy())
}

// answerPlugin prints one line for the node-problem-detector, which reads the exit code. A line
// that changes would cause a Kubernetes Event each minute.
func (c *doctorCommand) answerPlugin(r *doctor.Report, err error) error {
	line := "could not examine the node: "
	switch {
	case err != nil:
		line += err.Error()
		err = exit(ExitUsage)
	case r.Denied() != nil: // a denied permission says nothing about the node
		line += r.Denied().Summary
		err = exit(ExitUsage)
	case r.Healthy():
		line = r.Lasting()
	default:
		line, err = r.Lasting(), exit(ExitFailure)
	}
	if _, err := fmt.Fprintln(c.process.Out, line); err != nil {
		return outputError(err)
	}
	return err
}

// printReport prints a report as JSON or as text. If the report names a problem, it returns an
// error with the exit code.
func printReport(p Process, format string, report any, text func(io.Writer) error, good bool) error {
	var err error
	if format == "json" {
		encoder := json.NewEncoder(view.JSONWriter(p.Out))
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = text(p.Out)
	}
	if err == nil && !good {
		return exit(ExitUnhealthy)
	}
	return outputError(err)
}
