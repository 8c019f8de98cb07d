package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const eventsLong = `Print the pod lifecycle events of this node from now on, until SIGINT or SIGTERM.

` + howConnected + `
` + howFleet + `

If the connection breaks, the command waits for the daemon and continues. It
misses no events, unless the daemon was restarted or its history is too short: a
Gap then says so, and the current state follows. At the end the command prints
the position at which --since can continue.

Among the events are two marks: Synced, which ends the replayed events, and Gap.
With go-template they are not printed.`

const eventsExample = `  # what happens on this node; Ctrl-C ends it
  pleg-pipeline events

  # the current state first, for pods with a label in one namespace
  pleg-pipeline events --replay -n shop -l app=web

  # containers killed because they ran out of memory
  pleg-pipeline events --type ContainerDied -o json | jq -r 'select(.reason == "OOMKilled") | .podName'
  pleg-pipeline events --type ContainerDied -o go-template='{{.podName}} {{.exitCode}} {{.reason}}'`

// eventsCommand is the command events with its flags.
type eventsCommand struct {
	viewCommand

	replay      bool
	since       string
	types       []string
	pods        podNames
	noSandboxes bool

	options client.WatchOptions // set by validate
	// fleetAfter is --since for a cluster; set by validate.
	fleetAfter *fleet.Position
}

func newEvents(p Process) *cobra.Command {
	return newCommand(&eventsCommand{viewCommand: viewCommand{process: p}}, &cobra.Command{
		Use:     "events",
		Short:   "Print the events of this node, from a daemon if there is one",
		Long:    eventsLong,
		Example: eventsExample,
	})
}

func (c *eventsCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&c.replay, "replay", false, "first print the current state: the last event of each container")
	flags.StringVar(&c.since, "since", "", "first print the events after this `POSITION`, EPOCH:SEQ: the position\nthat the last run printed, or the id of a server-sent event")
	c.filter.add(cmd)
	typeFlag(cmd, &c.types)
	flags.StringSliceVar((*[]string)(&c.pods), "pod", nil, "only the pod with this `NAME`, NAMESPACE/NAME or UID; may be repeated")
	completeLive(cmd, "pod", c.source.completePods(c.process))
	flags.BoolVar(&c.noSandboxes, "no-sandboxes", false, "no events of pod sandboxes")
	c.output.add(cmd, "events", view.ParseFleetEvents)
	c.source.add(cmd)
	c.fleet.add(cmd)
	c.log.addQuiet(cmd)
}

func (c *eventsCommand) validate(flags *pflag.FlagSet) error {
	if err := c.viewCommand.validate(flags); err != nil {
		return err
	}
	if !c.fleet.given() {
		// The fields of a cluster's events are not all those of a node's.
		if _, err := view.ParseEvents(c.output.text.text); err != nil {
			return fmt.Errorf("--output: %w", err)
		}
	}
	wanted := c.filter.Filter
	var err error
	if wanted.Types, wanted.NetworkEvents, err = parseTypes(c.types); err != nil {
		return err
	}
	wanted.PodUIDs, wanted.OmitSandboxes = c.pods.uids(), c.noSandboxes
	c.options = client.WatchOptions{Name: Name + "-events", Replay: c.replay, Bookmarks: true, Filter: wanted}
	if !flags.Changed("since") {
		return nil
	}
	if c.fleet.given() {
		if c.replay {
			return errors.New("--since cannot be combined with --replay for a fleet: events that are no longer available are replaced by a replay")
		}
		after, err := fleet.ParsePosition(c.since)
		if err != nil {
			return fmt.Errorf("--since: %w", err)
		}
		c.fleetAfter = &after
		return nil
	}
	if c.source.own {
		return errNeedsDaemon
	}
	after, err := pleg.ParsePosition(c.since)
	if err != nil {
		return fmt.Errorf("--since: %w", err)
	}
	c.options.After = &after
	c.source.needsDaemon = true
	return nil
}

var errNeedsDaemon = errors.New("--since needs a daemon: a pipeline in this process has no earlier events")

func (c *eventsCommand) run(ctx context.Context) error {
	if c.fleet.given() {
		return c.runFleet(ctx)
	}
	out := c.log.console(c.process.Err)
	return c.source.use(ctx, c.process, out, func(ctx context.Context, from source) error {
		f := follower{
			out: out, pods: c.pods, marks: c.output.format.Kind() != view.Template, fromNow: !c.replay && c.options.After == nil,
			printer: view.EventPrinter(c.process.Out, c.output.options(c.process)),
		}
		err := printing(ctx, out, c.process.Out, func(ctx context.Context) error { return f.follow(ctx, from, c.options) })
		if ctx.Err() == nil {
			return err
		}
		sayReplayed(ctx, out)
		_, resumes := from.(daemonSource)
		if last := f.last.Load(); last != nil && resumes {
			out.say(ctx, "%v: to continue, use --since %v", context.Cause(ctx), last)
		}
		return nil
	})
}

// follower prints the events of a source and reports the state of the connection.
type follower struct {
	out     console
	printer view.Printer[pleg.Event]
	marks   bool // whether to print them
	pods    podNames
	fromNow bool // no earlier events were requested

	disconnected bool
	// last is the position of the last event printed.
	last atomic.Pointer[client.Position]
}

func (f *follower) follow(ctx context.Context, from source, o client.WatchOptions) error {
	if err := f.printer.Start(); err != nil {
		return outputError(err)
	}
	return f.each(ctx, from, o, func(ev pleg.Event) error {
		if f.wants(ev) {
			if err := f.printer.Print(ev); err != nil {
				return outputError(err)
			}
		}
		if at, ok := ev.Position(); ok {
			f.last.Store(&at)
		}
		return nil
	})
}

// silentAfter is how long a daemon may send nothing after it was asked for events.
const silentAfter = 10 * time.Second

// each calls handle for each event until ctx ends or an error occurs, and reports
// what happens to the connection.
func (f *follower) each(ctx context.Context, from source, o client.WatchOptions, handle func(pleg.Event) error) error {
	// Whatever it is asked, a daemon that knows its pods sends a mark at once.
	silent := time.AfterFunc(silentAfter, func() { f.out.say(ctx, "the daemon has sent nothing for %v; waiting for it", silentAfter) })
	defer silent.Stop()
	o.Disconnected = func(err error, _ time.Duration) {
		silent.Stop()
		f.sayDisconnected(ctx, err)
	}
	for ev, err := range from.events(ctx, o) {
		silent.Stop()
		if err != nil {
			return err
		}
		f.sayConnected(ctx, ev)
		if err := handle(ev); err != nil {
			return err
		}
	}
	return nil
}

// sayDisconnected prints one notice, however many attempts to connect fail.
func (f *follower) sayDisconnected(ctx context.Context, err error) {
	if f.disconnected {
		return
	}
	f.disconnected = true
	why := err.Error()
	if s, ok := status.FromError(err); ok {
		why = s.Message()
	}
	f.out.say(ctx, "disconnected from the daemon (%s); waiting for it", why)
}

// sayConnected prints a notice if ev is a Gap or the first event of a new
// connection.
func (f *follower) sayConnected(ctx context.Context, ev pleg.Event) {
	prefix := ""
	if f.disconnected {
		prefix = "reconnected to the daemon: "
		f.disconnected = false
	}
	switch {
	case ev.Type == pleg.Gap && ev.Reason == pleg.Stopped:
		f.out.say(ctx, "%s%d events (of all pods) are missing because the daemon ended before they were read", prefix, ev.Missed)
	case ev.Type == pleg.Gap && ev.Missed > 0:
		f.out.say(ctx, "%s%d events (of all pods) are missing because the daemon no longer has them; the current state follows", prefix, ev.Missed)
	case ev.Type == pleg.Gap && ev.Reason == pleg.OtherEpoch:
		f.out.say(ctx, "%sevents are missing because the daemon was restarted; the current state follows", prefix)
	case ev.Type == pleg.Gap:
		f.out.say(ctx, "%sevents are missing because the daemon no longer has them; the current state follows", prefix)
	case prefix != "":
		f.out.say(ctx, "%sno events are missing", prefix)
	}
}

func (f *follower) wants(ev pleg.Event) bool {
	switch ev.Type {
	case pleg.Bookmark:
		return false
	case pleg.Synced:
		// A watch from now on begins with a Synced, which ends nothing.
		began := f.last.Load() != nil
		return f.marks && (began || !f.fromNow)
	case pleg.Gap:
		return f.marks
	default:
		return f.pods.wants(ev.PodUID, ev.PodNamespace, ev.PodName)
	}
}
