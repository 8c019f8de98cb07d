package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
)

const doctorLong = `Find out why "PLEG is not healthy".

It makes the calls of a relist to the container runtime and measures each: the
version, the conditions, both lists, and the status of every sandbox and
container, four at a time. It names the calls that hang and the slowest ones,
compares the lists with the relist period and with the 16 MiB that a kubelet
accepts, counts dead containers, and checks the disk and the pressure of the
node. It reports which known causes fit and what to do.

It only reads. If the runtime hangs, the report is partial: it is printed
within --timeout.

Exit codes: 0 if it found no problem, 3 if it found one, otherwise as for every
command.

` + howFound + `
A recording cannot be examined.`

const doctorExample = `  sudo pleg-pipeline doctor
  pleg-pipeline doctor -o json | jq -r '.findings[].cause'`

// doctorCommand is the command doctor with its flags.
type doctorCommand struct {
	process Process
	runtime runtimeFlags
	log     logFlags

	output               string
	timeout, callTimeout time.Duration
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
	c.runtime.add(cmd)
	flags.Lookup("runtime-endpoint").Usage = "`ENDPOINT` of the runtime, such as unix:///run/containerd/containerd.sock"
	flags.Lookup("replay-speed").Hidden = true
	c.log.addQuiet(cmd)
}

func (c *doctorCommand) validate(flags *pflag.FlagSet) error {
	if c.timeout <= 0 || c.callTimeout <= 0 {
		return fmt.Errorf("--timeout (%v) and --call-timeout (%v) must be longer than 0", c.timeout, c.callTimeout)
	}
	return c.runtime.validate(flags)
}

// errUnhealthy means that the report has a problem.
var errUnhealthy = errors.New("a problem was found")

func (c *doctorCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	examine := func(ctx context.Context, at endpoint.Endpoint) error {
		return c.print(doctor.Examine(ctx, doctor.Options{
			Endpoint: at.Address, Source: at.Source,
			Timeout: c.timeout, CallTimeout: c.callTimeout,
			Period: pipeline.DefaultRelistPeriod, Threshold: pipeline.DefaultRelistThreshold,
			Pressure: c.process.pressure(), Usage: doctor.Usage,
		}))
	}
	if c.runtime.simulation.pods > 0 {
		return c.runtime.use(ctx, c.process, out, examine)
	}
	found, err := c.runtime.resolve(ctx, c.process)
	if errors.Is(err, endpoint.ErrNone) {
		return c.print(&doctor.Report{At: time.Now(), Source: "well-known sockets", Calls: []doctor.Call{}, Findings: []doctor.Finding{{
			Cause: doctor.RuntimeStopped, Severity: doctor.Problem, Evidence: err.Error(),
			Advice: "start the runtime, or name its socket with --runtime-endpoint",
		}}})
	}
	if err != nil {
		return err
	}
	if file, ok := found.Recording(); ok {
		return fmt.Errorf("doctor examines a running runtime and its node: it cannot examine the recording in %s", file)
	}
	return examine(ctx, found)
}

func (c *doctorCommand) print(r *doctor.Report) error {
	var err error
	if c.output == "json" {
		encoder := json.NewEncoder(printer.JSONWriter(c.process.Out))
		encoder.SetIndent("", "  ")
		err = encoder.Encode(r)
	} else {
		err = r.Print(c.process.Out)
	}
	if err := outputError(err); err != nil {
		return err
	}
	if !r.Healthy() {
		return errUnhealthy
	}
	return nil
}
