package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/top"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

const podsLong = `Print the pods of this node, or those with the given names (NAME, NAMESPACE/NAME
or UID): their state, the restarts of their containers, their age, the age of this
information, and what is wrong.

` + howConnected + `
` + howFleet + `

STATE is "ready" as in kubectl, but without probes: the sandbox is ready, and all
containers run. Otherwise it is "notready", or "hung", "slow" or "failed" if the
pod cannot be inspected. RUNNING and RESTARTS count the newest container of each
name, without init containers that have ended well.
KNOWN is the age of this information: it grows while the pod cannot be inspected.
DETAILS names the call that hangs, and since when.

With --watch on a terminal, the command shows these pods as "top" does. Otherwise
it prints a pod again after each of its events; the state of a removed pod is
"gone".`

const podsExample = `  pleg-pipeline pods
  pleg-pipeline pods -n shop --watch --sort-by restarts
  pleg-pipeline pods shop/web-0 -o yaml
  pleg-pipeline pods -o json | jq 'select(.error) | .uid'
  pleg-pipeline pods -o json | jq -r '.name + " " + .containers[].state'`

// gone is the state of a pod that no longer exists.
const gone = "gone"

type podsCommand struct {
	viewCommand

	watch  bool
	sort   string
	sorted bool // --sort-by is given
}

func newPods(p Process) *cobra.Command {
	c := &podsCommand{viewCommand: viewCommand{process: p, needsPods: true}}
	return newCommand(c, &cobra.Command{
		Use:        "pods [NAME...]",
		SuggestFor: []string{"describe", "get", "ps", "list"},
		Args:       podArgs,
		PreRun:     func(_ *cobra.Command, args []string) { c.filter.names = args },
		Short:      "Print the pods of this node and the age of this information",
		Long:       podsLong,
		Example:    podsExample,
	})
}

func (c *podsCommand) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, "continue, and print each pod again after each of its events")
	enumFlag(cmd, &c.sort, "sort-by", "", "order: by name, most restarts, youngest, or oldest\ninformation first", view.PodOrders()...)
	c.filter.add(cmd)
	c.output.add(cmd, "pods")
	c.addSources(cmd)
}

func (c *podsCommand) validate(flags *pflag.FlagSet) error {
	c.sorted, c.source.runtime.once = flags.Changed("sort-by"), !c.watch
	return c.viewCommand.validate(flags)
}

func (c *podsCommand) run(ctx context.Context) error {
	if c.watch && c.output.format == view.Text && c.process.hasScreen() {
		return c.show(ctx)
	}
	// What there is to say comes below the table.
	stderr := &heldWriter{w: c.process.Err}
	if !c.watch {
		stderr.hold()
		defer stderr.release()
	}
	out := c.log.console(stderr)
	out.held = stderr
	return c.use(ctx, out, func(ctx context.Context, from source) error {
		err := printing(ctx, out, c.process.Out, func(ctx context.Context) error { return c.print(ctx, out, from) })
		if ctx.Err() != nil {
			sayReplayed(ctx, out)
			return nil // it was interrupted
		}
		return err
	})
}

// show shows the selected pods on the whole screen.
func (c *podsCommand) show(ctx context.Context) error {
	screen := newFullScreen(c.process)
	options := top.Options{Interval: time.Second}
	if c.sorted {
		options.Sort = c.sort
	}
	return c.use(ctx, c.log.console(&screen.stderr), func(ctx context.Context, from source) error {
		return screen.show(ctx, selected{from, &c.filter}, options)
	})
}

// print prints the selected pods, and with --watch each again after each of its events.
func (c *podsCommand) print(ctx context.Context, out console, from source) error {
	pods, latest, missing := c.current(ctx, out, from)
	if len(pods) == 0 && missing != nil {
		return missing
	}
	pods = slices.DeleteFunc(pods, func(p view.Pod) bool { return !c.filter.wants(&p) })
	slices.SortStableFunc(pods, func(a, b view.Pod) int {
		if (c.watch || c.fleet.given()) && !c.sorted { // what does not change is not printed again, and many rows hide it
			return cmp.Or(view.CompareTrouble(&a, &b), view.ComparePods(c.sort, &a, &b))
		}
		return view.ComparePods(c.sort, &a, &b)
	})
	options := c.output.options(c.process)
	options.Nodes = c.fleet.given()
	printer := view.PodPrinter(c.process.Out, options)
	if err := printer.Start(pods...); err != nil {
		return outputError(err)
	}
	for _, pod := range pods {
		if err := printer.Print(pod); err != nil {
			return outputError(err)
		}
	}
	if missing != nil { // a part of the cluster
		return missing
	}
	if len(pods) == 0 {
		if err := c.filter.nothing(c.watch); err != nil {
			return err
		}
	}
	if err := c.sayVerdict(ctx, out, from, pods); err != nil || !c.watch {
		return err
	}
	return c.follow(ctx, out, from, latest, printer)
}

// sayVerdict says what is wrong with the node or with pods of a cluster, below a table that may
// be longer than the screen and that shows what was known before.
func (c *podsCommand) sayVerdict(ctx context.Context, out console, from source, pods []view.Pod) error {
	figures, problem, err := from.Nodes(ctx)
	if err != nil {
		return err
	}
	v := view.ClusterVerdict(problem, pods, time.Now())
	if figures == nil {
		now, err := from.Status(ctx)
		if err != nil {
			return err
		}
		v = verdict.Of(now)
	}
	if v.Severity != verdict.OK {
		width := terminalWidth(c.process.Err) - len(Name+": ")
		out.say(ctx, "%s", strings.TrimSuffix(view.Wrap(view.Printable(v.Text), width, "  "), "\n"))
	}
	return nil
}

// current returns all pods once those that do not hang are known, and the last event before.
func (c *podsCommand) current(ctx context.Context, out console, from source) (pods []view.Pod, latest fleet.Event, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	if c.watch || !c.fleet.given() { // a cluster has what is known
		state := startWait(ctx, out, from, "")
		latest, err = awaitState(ctx, from)
		if state.end(); errors.Is(err, errNoAnswer) && state.why != "" {
			err = fmt.Errorf("no answer within %v: %s", answerTimeout, state.why)
		}
		if err != nil {
			return nil, latest, err
		}
	}
	pods, err = from.Pods(ctx)
	return pods, latest, err
}

// follow prints each pod after each of its events after an event.
func (c *podsCommand) follow(ctx context.Context, out console, from source, latest fleet.Event, printer *view.Printer[view.Pod]) error {
	o := client.WatchOptions{Name: Name + "-pods", Filter: c.filter.Filter}
	if cluster, ok := from.(fleetSource); ok {
		cluster.after = &latest.At
		from = cluster
	} else if at, ok := latest.Position(); ok {
		o.After = at
	}
	f := c.follower(out)
	return f.each(ctx, from, o, func(ev fleet.Event) error {
		if ev.PodUID == "" || !c.filter.wantsEvent(ev) {
			return nil
		}
		pod, ok, err := from.Pod(ctx, ev)
		if err != nil {
			f.sayDisconnected(ctx, err) // a later event reports the reconnection
			return nil
		}
		if !ok {
			pod = view.Pod{UID: ev.PodUID, Node: ev.Node, State: gone, CurrentAsOf: ev.ObservedAt}
		}
		pod.Name, pod.Namespace = cmp.Or(pod.Name, ev.PodName), cmp.Or(pod.Namespace, ev.PodNamespace)
		return outputError(printer.Print(pod))
	})
}
