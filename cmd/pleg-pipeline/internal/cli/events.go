package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

// eventName is the template of the name of an event's pod, as --pod accepts it.
const eventName = "{{if .podName}}{{.podNamespace}}/{{.podName}}{{else}}{{.podUID}}{{end}}"

// eventsCommand is the command events with its flags.
type eventsCommand struct {
	viewCommand

	follow bool
	replay bool
	since  string
	types  []string

	options client.WatchOptions // set by validate
}

func newEvents(p Process) *cobra.Command {
	return newCommand(&eventsCommand{viewCommand: viewCommand{process: p}}, &cobra.Command{
		Use:        "events",
		SuggestFor: []string{"logs", "log", "watch"},
		Short:      "Print the events of this node, from a daemon if there is one",
		Long:       eventsLong,
		Example:    eventsExample,
	})
}

func (c *eventsCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVarP(&c.follow, "follow", "f", true, "continue with the events from now on; --follow=false\nends after the earlier ones")
	flags.BoolVar(&c.replay, "replay", false, "first print the current state: the last event of each container")
	flags.StringVar(&c.since, "since", "", "first print the events of this `TIME`, such as 10m, as far as\nthe daemon still has them, or those after a position,\nEPOCH:SEQ: the one that the last run printed, or the id of a\nserver-sent event")
	c.filter.add(cmd)
	typeFlag(cmd, &c.types)
	flags.StringSliceVar(&c.filter.names, "pod", nil, "only the pod with this `NAME`, NAMESPACE/NAME or UID; may be repeated")
	flags.BoolVar(&c.filter.OmitSandboxes, "no-sandboxes", false, "no events of pod sandboxes")
	c.output.add(cmd, "events", eventName, func(s string) (view.Format, error) { return view.ParseEventFormat(s, true) })
	c.addSources(cmd)
}

func (c *eventsCommand) validate(flags *pflag.FlagSet) error {
	if err := c.viewCommand.validate(flags); err != nil {
		return err
	}
	if _, err := view.ParseEventFormat(c.output.text, c.fleet.given()); err != nil {
		return fmt.Errorf("--output: %w", err) // the events of a node have fewer fields
	}
	var err error
	if c.filter.Types, err = parseTypes(c.types); err != nil {
		return err
	}
	c.options = client.WatchOptions{Name: Name + "-events", Replay: c.replay, Bookmarks: true, Filter: c.filter.Filter}
	if flags.Changed("since") {
		return c.validateSince()
	}
	return nil
}

var errNeedsDaemon = errors.New("--since needs a daemon: a pipeline in this process has no earlier events")

func (c *eventsCommand) validateSince() error {
	if c.fleet.given() {
		if c.replay {
			return errors.New("--since cannot be combined with --replay for a fleet: events that are no longer available are replaced by a replay")
		}
		after, err := fleet.ParsePosition(c.since)
		if err != nil {
			return fmt.Errorf("--since: %w", err)
		}
		c.fleet.after = &after
		return nil
	}
	if c.source.own {
		return errNeedsDaemon
	}
	c.source.needsDaemon = true
	if age, err := time.ParseDuration(c.since); err == nil && age >= 0 {
		c.options.Since = time.Now().Add(-age)
		return nil
	}
	after, err := pleg.ParsePosition(c.since)
	if err != nil {
		return fmt.Errorf("--since: %w", err)
	}
	c.options.After = after
	return nil
}

func (c *eventsCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	return c.use(ctx, out, func(ctx context.Context, from source) error {
		f := c.follower(out)
		f.filter, f.follow, f.marks = c.filter, c.follow, c.output.format.Kind() != view.Template
		f.fromNow = !c.replay && c.since == "" && !c.fleet.given()
		options := c.output.options(c.process)
		options.Nodes = c.fleet.given()
		printer := view.EventPrinter(c.process.Out, options)
		err := printing(ctx, out, c.process.Out, func(ctx context.Context) error { return f.print(ctx, from, c.options, printer) })
		if ctx.Err() == nil {
			return err
		}
		sayReplayed(ctx, out)
		_, own := from.(ownSource)
		if last := f.last.Load(); last != nil && !own {
			out.say(ctx, "%v: to continue, use --since %s", context.Cause(ctx), position(*last))
		}
		return nil
	})
}

// position returns the position after an event; "" if it has none.
func position(ev fleet.Event) string {
	if ev.At != (fleet.Position{}) {
		return ev.At.String()
	}
	if at, ok := ev.Position(); ok && ev.Node == "" {
		return at.String()
	}
	return ""
}

// follower passes the events of a source on and reports the state of the connection.
type follower struct {
	out     console
	server  string // what the source connects to
	filter  podFilter
	follow  bool // whether to continue after the earlier events
	marks   bool // whether to print them
	fromNow bool // no earlier events were requested

	disconnected bool
	// last is the last event with a position that was printed.
	last atomic.Pointer[fleet.Event]
}

func (f *follower) print(ctx context.Context, from source, o client.WatchOptions, printer *view.Printer[fleet.Event]) error {
	if err := printer.Start(); err != nil {
		return outputError(err)
	}
	err := f.each(ctx, from, o, func(ev fleet.Event) error {
		if !f.follow && ev.Type == pleg.Synced && ev.Node == "" {
			return errCaughtUp
		}
		if f.wants(ev) {
			if err := printer.Print(ev); err != nil {
				return outputError(err)
			}
		}
		if position(ev) != "" {
			f.last.Store(&ev)
		}
		return nil
	})
	if errors.Is(err, errCaughtUp) {
		return nil
	}
	return err
}

// errCaughtUp ends a follower that has printed the earlier events.
var errCaughtUp = errors.New("the earlier events are printed")

// silentAfter is how long a daemon may send nothing after it was asked for events.
const silentAfter = 10 * time.Second

// each calls handle for each event until ctx ends or an error occurs, and reports
// what happens to the connection.
func (f *follower) each(ctx context.Context, from source, o client.WatchOptions, handle func(fleet.Event) error) error {
	// Whatever it is asked, a daemon that knows its pods sends a mark at once.
	silent := time.AfterFunc(silentAfter, func() { f.out.say(ctx, "%s has sent nothing for %v; waiting for it", f.server, silentAfter) })
	defer silent.Stop()
	o.Disconnected = func(err error, _ time.Duration) {
		silent.Stop()
		f.sayDisconnected(ctx, err)
	}
	for ev, err := range from.Events(ctx, o) {
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
	if !f.disconnected {
		f.disconnected = true
		f.out.say(ctx, "disconnected from %s (%v); waiting for it", f.server, err)
	}
}

// sayConnected prints a notice if ev is a Gap, unless it is one of a node of a cluster, or
// the first event of a new connection.
func (f *follower) sayConnected(ctx context.Context, ev fleet.Event) {
	prefix := ""
	if f.disconnected {
		prefix = "reconnected to " + f.server + ": "
		f.disconnected = false
	}
	why := f.server + " no longer has them; the current state follows"
	switch ev.Reason {
	case pleg.Stopped:
		why = f.server + " ended before they were read"
	case pleg.OtherEpoch:
		why = f.server + " was restarted; the current state follows"
	}
	switch {
	case ev.Type == pleg.Gap && ev.Node == "" && ev.Missed > 0:
		f.out.say(ctx, "%s%d events (of all pods) are missing because %s", prefix, ev.Missed, why)
	case ev.Type == pleg.Gap && ev.Node == "":
		f.out.say(ctx, "%sevents are missing because %s", prefix, why)
	case prefix != "":
		f.out.say(ctx, "%sno events are missing", prefix)
	}
}

func (f *follower) wants(ev fleet.Event) bool {
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
		return f.filter.wantsEvent(ev)
	}
}

// eventTypes are the values of --type.
func eventTypes() []string {
	var words []string
	for _, t := range pleg.EventTypes(pleg.ClassNormal, pleg.ClassOnRequest) {
		words = append(words, string(t))
	}
	return words
}

func typeFlag(cmd *cobra.Command, types *[]string) {
	cmd.Flags().StringSliceVar(types, "type", nil, "only events of this `TYPE`, such as ContainerDied; may be repeated.\nAn unknown one lists all")
	completeFlag(cmd, "type", eventTypes(), 0)
}

// parseTypes returns event types.
func parseTypes(words []string) (types []pleg.EventType, err error) {
	known := eventTypes()
	for _, word := range words {
		i := slices.IndexFunc(known, func(t string) bool { return strings.EqualFold(t, word) })
		if i < 0 {
			return nil, fmt.Errorf("--type %q is unknown: want %s", word, strings.Join(known, ", "))
		}
		types = append(types, pleg.EventType(known[i]))
	}
	return types, nil
}
