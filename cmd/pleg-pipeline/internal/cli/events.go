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

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
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
With -o name they are not printed.`

const eventsExample = `  # what happens on this node; Ctrl-C ends it
  pleg-pipeline events

  # the current state first, for pods with a label in one namespace
  pleg-pipeline events --replay -n shop -l app=web

  # containers killed because they ran out of memory
  pleg-pipeline events --type ContainerDied -o json | jq -r 'select(.reason == "OOMKilled") | .podName'`

type eventsCommand struct {
	viewCommand

	follow bool
	replay bool
	since  string
	types  []string

	options pleg.SubscribeOptions // set by validate
	// last is the last event with a position that was printed.
	last atomic.Pointer[fleet.Event]
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
	flags.StringSliceVar(&c.types, "type", nil, "only events of this `TYPE`, such as ContainerDied; may be repeated.\nAn unknown TYPE prints the known ones")
	completeFlag(cmd, "type", eventTypes())
	flags.StringSliceVar(&c.filter.names, "pod", nil, "only the pod with this `NAME`, NAMESPACE/NAME or UID; may be repeated")
	flags.BoolVar(&c.filter.OmitSandboxes, "no-sandboxes", false, "no events of pod sandboxes")
	c.output.add(cmd, "events")
	c.addSources(cmd)
}

func (c *eventsCommand) validate(flags *pflag.FlagSet) error {
	if err := c.viewCommand.validate(flags); err != nil {
		return err
	}
	var err error
	if c.filter.Types, err = parseTypes(c.types); err != nil {
		return err
	}
	c.options = pleg.SubscribeOptions{Name: Name + "-events", Replay: c.replay, Bookmarks: true, Filter: c.filter.Filter}
	if flags.Changed("since") {
		return c.validateSince()
	}
	return nil
}

var errNeedsDaemon = errors.New("--since needs a daemon: a pipeline in this process has no earlier events")

func (c *eventsCommand) validateSince() error {
	if c.fleet.given() && c.replay {
		return errors.New("--since cannot be combined with --replay for a fleet: events that are no longer available are replaced by a replay")
	}
	if c.source.own {
		return errNeedsDaemon
	}
	c.source.needsDaemon = true
	if age, err := time.ParseDuration(c.since); err == nil && age >= 0 {
		c.options.Since = time.Now().Add(-age)
		return nil
	}
	var err error
	if c.fleet.given() {
		c.fleet.after = new(fleet.Position)
		*c.fleet.after, err = fleet.ParsePosition(c.since)
	} else {
		c.options.After, err = pleg.ParsePosition(c.since)
	}
	if err != nil {
		return fmt.Errorf("--since: %w, or a time, such as 10m", err)
	}
	return nil
}

func (c *eventsCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	return c.use(ctx, out, func(ctx context.Context, from source) error {
		err := printing(ctx, out, c.process.Out, func(ctx context.Context) error { return c.print(ctx, out, from) })
		if ctx.Err() == nil {
			return err
		}
		sayReplayed(ctx, out)
		if last := c.last.Load(); last != nil && !c.source.own {
			out.say(ctx, "%v: to continue, use --since %s", context.Cause(ctx), view.Printable(position(*last)))
		}
		return nil
	})
}

// errCaughtUp ends the command when it has printed the earlier events.
var errCaughtUp = errors.New("the earlier events are printed")

func (c *eventsCommand) print(ctx context.Context, out console, from source) error {
	options := c.output.options(c.process)
	options.Nodes = c.fleet.given()
	printer := view.EventPrinter(c.process.Out, options)
	if err := printer.Start(); err != nil {
		return outputError(err)
	}
	printed := false
	err := c.watch(ctx, out, from, func(ev fleet.Event) error {
		if !c.follow && ev.Type == pleg.Synced && ev.Node == "" {
			return errCaughtUp
		}
		if c.wants(ev) {
			if err := printer.Print(ev); err != nil {
				return outputError(err)
			}
			printed = true
		}
		if position(ev) != "" {
			c.last.Store(&ev)
		}
		return nil
	})
	if !errors.Is(err, errCaughtUp) {
		return err
	}
	if c.replay && !printed && len(c.types) == 0 {
		return c.filter.nothing()
	}
	return nil
}

// watch calls handle for each event until ctx ends or an error occurs, and reports broken connections.
func (c *eventsCommand) watch(ctx context.Context, out console, from source, handle func(fleet.Event) error) error {
	server := "the daemon"
	if c.fleet.given() {
		server = "the server"
	}
	// A daemon that knows its pods sends a mark at once, whatever the watch asks for.
	first := startWait(ctx, out, from, server)
	defer first.end()
	lost, began := false, false
	disconnected := func(err error, _ time.Duration) {
		if c.fleet.given() {
			first.end()
		}
		if !lost { // one notice, however many attempts fail
			lost = true
			out.say(ctx, "waiting for %s: %v", server, err)
		}
	}
	for ev, err := range from.Events(ctx, c.options, disconnected) {
		first.end()
		if err != nil {
			return err
		}
		if !began {
			began = true
			c.sayReach(ctx, out, from)
			c.sayNothing(ctx, out, from)
		}
		prefix := ""
		if lost { // the first event of a new connection
			lost = false
			prefix = "connected to " + server + ": "
		}
		switch {
		case ev.Type == pleg.Gap && ev.Node == "": // not of a node of a cluster
			out.say(ctx, "%s%s", prefix, view.GapText(&ev))
		case prefix != "":
			out.say(ctx, "%sno events are missing", prefix)
		}
		if err := handle(ev); err != nil {
			return err
		}
	}
	return nil
}

// sayReach prints the time of the daemon's oldest event, if earlier ones were requested.
func (c *eventsCommand) sayReach(ctx context.Context, out console, from source) {
	if c.options.Since.IsZero() || c.fleet.given() || c.output.format == view.Name { // -o name prints no marks
		return
	}
	for ev, err := range from.Events(ctx, pleg.SubscribeOptions{Name: c.options.Name, Since: time.Unix(1, 0)}, nil) {
		if err == nil && ev.ObservedAt.After(c.options.Since) { // a mark has no time
			out.say(ctx, "the daemon has events since %s, and what it found then", ev.ObservedAt.Format(time.DateTime))
		}
		return
	}
}

// sayNothing says that no pod of this node is selected now, if the user selects some.
func (c *eventsCommand) sayNothing(ctx context.Context, out console, from source) {
	none := c.filter.nothing()
	if none == nil || c.fleet.given() || !c.follow {
		return
	}
	state, err := from.State(ctx)
	if err == nil && !slices.ContainsFunc(state.Pods, func(p view.Pod) bool { return c.filter.wants(&p) }) {
		out.say(ctx, "%v; waiting for one", none)
	}
}

// position returns the position after an event; "" if there is none.
func position(ev fleet.Event) string {
	if ev.At != "" {
		return string(ev.At)
	}
	if at, ok := ev.Position(); ok && ev.Node == "" {
		return at.String()
	}
	return ""
}

// wants reports whether an event is printed. -o name prints no marks.
func (c *eventsCommand) wants(ev fleet.Event) bool {
	marks := c.output.format != view.Name
	switch ev.Type {
	case pleg.Bookmark:
		return false
	case pleg.Synced:
		// A watch without earlier events begins with a Synced, which is of no interest.
		earlier := c.replay || c.since != "" || c.fleet.given()
		return marks && (earlier || c.last.Load() != nil)
	case pleg.Gap:
		return marks
	default:
		return c.filter.named(ev.PodUID, ev.PodNamespace, ev.PodName)
	}
}

func eventTypes() []string {
	var words []string
	for _, t := range eventtype.Types(eventtype.ClassNormal, eventtype.ClassOnRequest) {
		words = append(words, string(t))
	}
	return words
}

func parseTypes(words []string) (types []pleg.EventType, err error) {
	all := eventTypes()
	for _, word := range words {
		i := slices.IndexFunc(all, func(t string) bool { return strings.EqualFold(t, word) })
		if i < 0 {
			return nil, fmt.Errorf("--type %q is unknown: want %s", word, strings.Join(all, ", "))
		}
		types = append(types, pleg.EventType(all[i]))
	}
	return types, nil
}
