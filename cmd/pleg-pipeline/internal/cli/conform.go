package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/conform"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

const conformLong = `Try what a container runtime promises to the clients that follow its pods.

It runs pods of its own in the namespace ` + conform.Namespace + `, compares what the runtime
reports with what was done to them, and prints promise by promise: kept, broken
with evidence, not offered, or not tested. It removes its pods at the end, also
after Ctrl-C. The next run removes the pods of a run that was killed.

The image may be any that is on the node: this program is mounted into the
containers and runs in them. About 80 pods run at the same time for a while;
--skip large-list needs 6.

This is the only command that changes something in the runtime, so it never
looks for one. It needs root.

Exit codes: 0 if no promise is broken, 3 if one is, otherwise as for every
command.`

const conformExample = `  sudo pleg-pipeline conform -r unix:///run/containerd/containerd.sock --image registry.k8s.io/pause:3.10
  sudo pleg-pipeline conform -r unix:///run/crio/crio.sock --image registry.k8s.io/pause:3.10 \
    --stop-runtime "systemctl stop crio" --start-runtime "systemctl start crio" -o json`

type conformCommand struct {
	process Process
	log     logFlags

	options     conform.Options
	output      string
	stop, start string
}

func newConform(p Process) *cobra.Command {
	return newCommand(&conformCommand{process: p}, &cobra.Command{
		Use:     "conform",
		Short:   "Try what a container runtime promises",
		Long:    conformLong,
		Example: conformExample,
	})
}

func (c *conformCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&c.options.Endpoint, "runtime-endpoint", "r", "", "`ENDPOINT` of the runtime, such as unix:///run/containerd/containerd.sock")
	flags.StringVar(&c.options.Image, "image", "", "`IMAGE` of the containers; it must be on the node")
	enumFlag(cmd, &c.output, "output", "o", "format of the report", "text", "json")
	flags.StringSliceVar(&c.options.Only, "only", nil, "try only this `PROMISE`, by its id in the JSON report; may be repeated")
	flags.StringSliceVar(&c.options.Skip, "skip", nil, "do not try this `PROMISE`; may be repeated")
	flags.StringVar(&c.options.CgroupParent, "cgroup-parent", "", "parent `CGROUP` of the pods; if empty, the runtime chooses")
	flags.DurationVar(&c.options.CallTimeout, "call-timeout", 10*time.Second, "`TIME` after which a call counts as held up")
	flags.DurationVar(&c.options.Settle, "settle", 3*time.Second, "`TIME` by which an event may be late")
	flags.StringVar(&c.stop, "stop-runtime", "", "shell `COMMAND` that stops the runtime, to try what it keeps across a restart")
	flags.StringVar(&c.start, "start-runtime", "", "shell `COMMAND` that starts the runtime again")
	c.log.addQuiet(cmd)
}

func (c *conformCommand) validate(flags *pflag.FlagSet) error {
	switch {
	case c.options.Endpoint == "":
		return errors.New("--runtime-endpoint is missing: conform changes the runtime, so it does not look for one")
	case c.options.Image == "":
		return errors.New("--image is missing")
	case (c.stop == "") != (c.start == ""):
		return errors.New("--stop-runtime and --start-runtime need each other")
	}
	return cmp.Or(longerThanZero(flags, "call-timeout", "settle"), conform.CheckIDs(append(c.options.Only, c.options.Skip...)))
}

func (c *conformCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	c.options.Progress = func(id string) { out.say(ctx, "trying %s", id) }
	if c.stop != "" {
		c.options.Stop, c.options.Start = shell(c.stop), shell(c.start)
	}
	if err := cri.CheckSocket(ctx, c.options.Endpoint); err != nil {
		return err
	}
	if err := conform.CheckProgram(); err != nil {
		return err
	}
	report, err := conform.Run(ctx, c.options)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
			out.say(ctx, "interrupted; all pods are removed")
			return nil
		}
		return err
	}
	return printReport(c.process, c.output, report, report.Print, report.Conforms())
}

func shell(command string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "sh", "-c", command).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
		}
		return nil
	}
}

// newConformContainer is what the containers of conform run.
func newConformContainer() *cobra.Command {
	return &cobra.Command{
		Use:    conform.ProgramCommand,
		Hidden: true,
		RunE:   func(_ *cobra.Command, args []string) error { return fail(conform.RunProgram(args)) },
	}
}
