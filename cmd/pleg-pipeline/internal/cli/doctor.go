package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

const doctorLong = `Find out why "PLEG is not healthy". The first line is the verdict, with the pod
and the call that cause it; the second line says what to do.

It makes the calls of a relist to the container runtime and measures each: the
version, the conditions, both lists, and the status of every sandbox and
container, four at a time. It names the calls that
hang, fail or take long, finds containers that the runtime calls running although
their cgroup has no process, compares the lists with the relist period and with
the 16 MiB that a kubelet accepts, counts dead containers, and checks the disk
and the pressure of the node. If there is a daemon ("pleg-pipeline run --socket"),
it asks that too: it has watched for longer, and knows since when a pod hangs.

It only reads. If the runtime hangs, the report is partial: it is printed
within --timeout. With --for it examines again until it finds a problem.

Exit codes: 0 if it found no problem, 3 if it found one, otherwise as for every
command. With --npd, those of a plugin of the node-problem-detector: 0 if it
found no problem, 1 if it found one, 2 if it could not examine the node.

With --calls it measures the runtime instead, and prints a table for an issue: how
long each call takes, and what it gains to inspect 4 or 16 pods at once. It inspects
all pods again and again; at least half of the time it waits.

With --fleet it asks no runtime: it ranks the nodes that publish on a NATS server
by the verdict of their agents, those without an agent too.

` + howFound + `
A recording cannot be examined.`

const doctorExample = `  sudo pleg-pipeline doctor

  # wait up to ten minutes for a problem that comes and goes
  sudo pleg-pipeline doctor --for 10m

  sudo pleg-pipeline doctor --calls 1m

  pleg-pipeline doctor --fleet nats://nats.example:4222 --cluster prod

  pleg-pipeline doctor -o json | jq -r '.findings[].cause'`

// doctorCommand is the command doctor with its flags.
type doctorCommand struct {
	process Process
	source  sourceFlags
	fleet   fleetFlags
	log     logFlags

	output               string
	timeout, callTimeout time.Duration
	watch, calls         time.Duration
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
	flags.DurationVar(&c.timeout, "timeout", 30*time.Second, "`TIME` for the whole examination; calls that are not made by then are left out")
	flags.DurationVar(&c.callTimeout, "call-timeout", 5*time.Second, "`TIME` after which a call counts as hung")
	flags.DurationVar(&c.watch, "for", 0, "examine again for this `TIME`, until a problem is found")
	flags.DurationVar(&c.calls, "calls", 0, "measure the runtime's calls for this `TIME` instead")
	flags.BoolVar(&c.npd, "npd", false, "print only the verdict and exit as a plugin of the node-problem-detector")
	c.source.add(cmd)
	c.fleet.add(cmd)
	flags.Lookup("runtime-endpoint").Usage = "`ENDPOINT` of the runtime, such as unix:///run/containerd/containerd.sock"
	flags.Lookup("replay-speed").Hidden = true
	c.log.addQuiet(cmd)
}

func (c *doctorCommand) validate(flags *pflag.FlagSet) error {
	if err := longerThanZero(flags, "timeout", "call-timeout"); err != nil {
		return err
	}
	if c.watch < 0 {
		return fmt.Errorf("--for must not be negative, got %v", c.watch)
	}
	if flags.Changed("calls") {
		if err := longerThanZero(flags, "calls"); err != nil {
			return err
		}
		if c.npd || c.watch > 0 {
			return errors.New("--calls cannot be combined with --npd or --for: it does not look for problems")
		}
	}
	if c.npd && flags.Changed("output") {
		return errors.New("--npd cannot be combined with --output: it prints one line")
	}
	if err := c.source.validate(flags); err != nil {
		return err
	}
	return c.validateFleet(flags)
}

func (c *doctorCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	if c.fleet.given() {
		return c.examineFleet(ctx, out)
	}
	if c.calls > 0 {
		return c.useRuntime(ctx, out, func(ctx context.Context, at endpoint.Endpoint) error {
			out.say(ctx, "measuring the calls of %s for %v", at.Address, c.calls)
			return c.measureCalls(ctx, at)
		})
	}
	var report *doctor.Report
	err := c.examineRuntime(ctx, out, func(r *doctor.Report) { report = r })
	if c.npd {
		return c.answerPlugin(report, err)
	}
	if err != nil {
		return err
	}
	return c.printReport(report)
}

// examineRuntime finds the runtime and passes the report of its examination on.
func (c *doctorCommand) examineRuntime(ctx context.Context, out console, got func(*doctor.Report)) error {
	examine := func(ctx context.Context, at endpoint.Endpoint) error {
		got(c.examineUntil(ctx, out, func(ctx context.Context) *doctor.Report {
			o := c.options(at)
			o.Ask = func(ctx context.Context) *doctor.Daemon { return c.askDaemon(ctx, out) }
			return doctor.Examine(ctx, o)
		}))
		return nil
	}
	err := c.useRuntime(ctx, out, examine)
	if errors.Is(err, endpoint.ErrNone) {
		got(c.examineUntil(ctx, out, func(ctx context.Context) *doctor.Report { return c.withoutRuntime(ctx, out, err) }))
		return nil
	}
	return err
}

// useRuntime calls with for the runtime that it finds. A recording is an error.
func (c *doctorCommand) useRuntime(ctx context.Context, out console, with func(context.Context, endpoint.Endpoint) error) error {
	if c.source.runtime.simulation.pods > 0 {
		return c.source.runtime.use(ctx, c.process, out, with)
	}
	found, err := c.source.runtime.resolve(ctx, c.process)
	if err != nil {
		return err
	}
	if file, ok := found.Recording(); ok {
		return fmt.Errorf("doctor examines a running runtime and its node: it cannot examine the recording in %s", file)
	}
	return with(ctx, found)
}

func (c *doctorCommand) options(at endpoint.Endpoint) doctor.Options {
	return doctor.Options{
		Endpoint: at.Address, Source: at.Source, Timeout: c.timeout, CallTimeout: c.callTimeout,
		Period: pipeline.DefaultRelistPeriod, Threshold: pipeline.DefaultRelistThreshold,
		Pressure: c.process.Pressure, Cgroups: c.process.Cgroups, Usage: doctor.Usage,
	}
}

// measureCalls prints how the runtime answers.
func (c *doctorCommand) measureCalls(ctx context.Context, at endpoint.Endpoint) error {
	load, err := doctor.MeasureCalls(ctx, c.options(at), c.calls)
	if err != nil {
		return err
	}
	if c.output == "json" {
		return outputError(c.encode(load))
	}
	return outputError(load.Print(c.process.Out))
}

func (c *doctorCommand) encode(v any) error {
	encoder := json.NewEncoder(view.JSONWriter(c.process.Out))
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// withoutRuntime reports what the daemon knows, or that there is no runtime.
func (c *doctorCommand) withoutRuntime(ctx context.Context, out console, err error) *doctor.Report {
	if daemon := c.askDaemon(ctx, out); daemon != nil {
		return doctor.Judge(daemon)
	}
	return doctor.Judge(nil, verdict.Finding{
		Cause: verdict.RuntimeStopped, Severity: verdict.Problem, Summary: "no container runtime found", Evidence: err.Error(),
		Advice: "start the runtime, or name its socket with --runtime-endpoint",
	})
}

// daemonTimeout is the time in which the daemon must answer. It does not call the
// runtime for its answer.
const daemonTimeout = 2 * time.Second

// askDaemon returns what the daemon of this node knows; nil if there is none.
func (c *doctorCommand) askDaemon(ctx context.Context, out console) *doctor.Daemon {
	quiet := out
	quiet.w = io.Discard // that there is no daemon is no news
	socket, err := c.source.findDaemon(ctx, c.process, quiet)
	if err != nil {
		out.say(ctx, "the daemon is not asked: %v", err)
	}
	if err != nil || socket == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, daemonTimeout)
	defer cancel()
	daemon, err := newClient(c.process, socket)
	if err != nil {
		return nil
	}
	defer func() { _ = daemon.Close() }()
	status, err := daemon.Status(ctx)
	if err != nil {
		out.say(ctx, "the daemon is not asked: %v", fromDaemon(ctx, err))
		return nil
	}
	return doctor.NewDaemon(socket, status)
}

// betweenExaminations is the pause of --for, so that the examinations add little load.
const betweenExaminations = 2 * time.Second

// examineUntil examines once, or with --for until a problem is found or the time is
// over. It returns the first report with a problem, or else the last one with a warning.
func (c *doctorCommand) examineUntil(ctx context.Context, out console, examine func(context.Context) *doctor.Report) *doctor.Report {
	began := time.Now()
	var worst *doctor.Report
	for n := 1; ; n++ {
		report := examine(ctx)
		if worst == nil || len(report.Findings) > 0 || len(worst.Findings) == 0 {
			worst = report
		}
		passed := time.Since(began)
		if !report.Healthy() || passed+betweenExaminations > c.watch || ctx.Err() != nil {
			return worst
		}
		if n == 1 {
			out.say(ctx, "no problem so far; examining again for %v", c.watch)
		}
		select {
		case <-time.After(betweenExaminations):
		case <-ctx.Done():
		}
	}
}
