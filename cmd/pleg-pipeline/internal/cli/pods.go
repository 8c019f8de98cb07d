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

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/top"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

const podsLong = `Print the pods of this node, or those with the given names (NAME, NAMESPACE/NAME
or UID): their state, the restarts of their containers, their age, the age of this
information, and what is wrong.

` + howConnected + `
` + howFleet + `

STATE is "ready" as in kubectl, but without probes, otherwise "notready", or "hung",
"slow" or "failed" if the pod cannot be inspected. RUNNING and RESTARTS count the
newest container of each name, without init containers that have ended well and
ephemeral ones that have ended.
KNOWN is the age of this information.

"top" shows the pods as they change.`

const podsExample = `  pleg-pipeline pods
  pleg-pipeline pods -n shop --sort-by restarts
  pleg-pipeline pods shop/web-0 -o json | jq
  pleg-pipeline pods -o json | jq 'select(.error) | .uid'
  pleg-pipeline pods -o json | jq -r '.name + " " + .containers[].state'`

type podsCommand struct {
	viewCommand

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
	enumFlag(cmd, &c.sort, "sort-by", "", "order: by name, most restarts, youngest, or oldest\ninformation first", view.PodOrders()...)
	c.filter.add(cmd)
	c.output.add(cmd, "pods")
	c.addSources(cmd)
}

func (c *podsCommand) validate(flags *pflag.FlagSet) error {
	c.sorted, c.source.runtime.once = flags.Changed("sort-by"), true
	return c.viewCommand.validate(flags)
}

func (c *podsCommand) run(ctx context.Context) error {
	// Notices come below the table.
	stderr := &heldWriter{w: c.process.Err}
	stderr.hold()
	defer stderr.release()
	out := c.log.console(stderr)
	out.held = stderr
	return c.use(ctx, out, func(ctx context.Context, from source) error {
		err := printing(ctx, out, c.process.Out, func(ctx context.Context) error { return c.print(ctx, out, from) })
		if ctx.Err() != nil {
			return nil // the command was interrupted
		}
		return err
	})
}

func (c *podsCommand) print(ctx context.Context, out console, from source) error {
	state, missing := c.current(ctx, out, from)
	if len(state.Pods) == 0 && missing != nil {
		return missing
	}
	state.Pods = slices.DeleteFunc(state.Pods, func(p view.Pod) bool { return !c.filter.wants(&p) })
	slices.SortStableFunc(state.Pods, func(a, b view.Pod) int {
		if c.fleet.given() && !c.sorted { // many rows hide it
			return cmp.Or(view.CompareSeverity(&a, &b), view.ComparePods(c.sort, &a, &b))
		}
		return view.ComparePods(c.sort, &a, &b)
	})
	options := c.output.options(c.process)
	options.Nodes = c.fleet.given()
	printer := view.PodPrinter(c.process.Out, options)
	if err := printer.Start(state.Pods...); err != nil {
		return outputError(err)
	}
	for _, pod := range state.Pods {
		if err := printer.Print(pod); err != nil {
			return outputError(err)
		}
	}
	if missing != nil { // such as the nodes of a cluster
		return missing
	}
	if len(state.Pods) == 0 {
		if err := c.filter.nothing(); err != nil {
			return err
		}
	}
	// It is below the table, which may be longer than the screen.
	if v := state.Verdict(time.Now()); v.Severity != verdict.OK {
		width := terminalWidth(c.process.Err) - len(Name+": ")
		out.say(ctx, "%s", strings.TrimSuffix(view.Wrap(view.Printable(v.Text), width, "  "), "\n"))
	}
	return nil
}

// current returns the state once all pods are known except hung ones.
func (c *podsCommand) current(ctx context.Context, out console, from source) (state top.State, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	if !c.fleet.given() { // a cluster returns the known pods
		waiting := startWait(ctx, out, from, "")
		err := awaitState(ctx, from.(daemonSource))
		if waiting.end(); errors.Is(err, errNoAnswer) && waiting.why != "" {
			err = fmt.Errorf("no answer within %v: %s", answerTimeout, waiting.why)
		}
		if err != nil {
			return state, err
		}
	}
	return from.State(ctx)
}
