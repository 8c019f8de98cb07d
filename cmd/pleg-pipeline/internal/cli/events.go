package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/position"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
)

const eventsLong = `Print the pod lifecycle events of this node from now on, until SIGINT or SIGTERM.

` + howConnected + `

A daemon that is restarted is waited for. Nothing is lost while only the
connection is; when events are lost, because the daemon was restarted or its
history is too short, a Gap says so and the present state follows. At the end
the position is told from which --since goes on.

Among the events are marks: Synced ends what lay before, and Gap. With
go-template they are not printed.`

const eventsExample = `  # what happens on this node; Ctrl-C ends it
  pleg-pipeline events

  # first the present state, for pods with a label in one namespace
  pleg-pipeline events --replay -n shop -l app=web

  # who was killed for its memory
  pleg-pipeline events --type ContainerDied -o json | jq -r 'select(.reason == "OOMKilled") | .podName'
  pleg-pipeline events --type ContainerDied -o go-template='{{.podName}} {{.exitCode}} {{.reason}}'`

// eventsCommand is the command events with its flags.
type eventsCommand struct {
	process Process
	source  sourceFlags
	filter  podFilter
	log     logFlags

	replay      bool
	since       string
	types, pods []string
	noSandboxes bool
	output      printer.Format
	noHeaders   bool

	options client.WatchOptions // made by validate
}

func newEvents(p Process) *cobra.Command {
	c := eventsCommand{process: p}
	cmd := &cobra.Command{
		Use:     "events",
		Short:   "Print the events of this node, of a daemon if there is one",
		Long:    eventsLong,
		Example: eventsExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validate(cmd.Flags()); err != nil {
				return err
			}
			return fail(c.run(cmd.Context()))
		},
	}
	c.addFlags(cmd)
	return cmd
}

func (c *eventsCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&c.replay, "replay", false, "print the present state first: the last event of each container")
	flags.StringVar(&c.since, "since", "", "print what happened behind this `POSITION` first, EPOCH:SEQ or SEQ: what the\nlast run ended with, or the id of a server-sent event")
	c.filter.add(cmd)
	typeFlag(cmd, &c.types)
	flags.StringSliceVar(&c.pods, "pod", nil, "only the pod with this `UID`; may be repeated")
	flags.BoolVar(&c.noSandboxes, "no-sandboxes", false, "leave out the events of pod sandboxes")
	outputFlag(cmd, &c.output, "events", printer.ParseEvents)
	flags.BoolVar(&c.noHeaders, "no-headers", false, "leave out the line of column names")
	c.source.add(cmd)
	c.log.addQuiet(cmd)
}

func (c *eventsCommand) validate(flags *pflag.FlagSet) error {
	if err := c.source.validate(flags); err != nil {
		return err
	}
	if err := c.filter.validate(); err != nil {
		return err
	}
	types, network, err := parseTypes(c.types)
	if err != nil {
		return err
	}
	c.options = client.WatchOptions{
		Name: Name + "-events", Replay: c.replay, Bookmarks: true,
		Types: types, NetworkEvents: network, Namespaces: c.filter.namespaces, Selector: c.filter.selector, OmitSandboxes: c.noSandboxes,
	}
	for _, uid := range c.pods {
		c.options.PodUIDs = append(c.options.PodUIDs, pipeline.PodUID(uid))
	}
	if !flags.Changed("since") {
		return nil
	}
	if c.replay {
		return errors.New("--since cannot be combined with --replay: what can no longer be had is replaced by a replay")
	}
	if c.source.own {
		return errors.New("--since needs a daemon: a pipeline of its own begins anew")
	}
	epoch, seq, err := position.Parse(c.since)
	if err != nil {
		return fmt.Errorf("--since: %w", err)
	}
	c.options.After = &client.Position{Epoch: epoch, Seq: seq}
	c.source.daemonFor = "--since"
	return nil
}

func (c *eventsCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	return c.source.use(ctx, c.process, out, func(ctx context.Context, from source) error {
		f := follower{
			out: out, marks: c.output.Kind() != printer.Template,
			printer: printer.Events(c.process.Out, printer.Options{
				Format: c.output, Headers: !c.noHeaders, Color: colorWanted(c.process.Out, c.process.Getenv),
			}),
		}
		err := printing(ctx, out, c.process.Out, func(ctx context.Context) error { return f.follow(ctx, from, c.options) })
		if ctx.Err() == nil {
			return err
		}
		sayReplayed(ctx, out)
		if last := f.last.Load(); last != nil && from.resumes() {
			out.say(ctx, "%v: go on with --since %s", context.Cause(ctx), position.Format(last.Epoch, last.Seq))
		}
		return nil
	})
}
