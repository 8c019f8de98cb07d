package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const podsLong = `Print the pods of this node, or those with the given names (NAME, NAMESPACE/NAME
or UID): the state of their sandbox and containers, the restarts of their
containers, their age, the age of this information, and what is wrong.

` + howConnected + `
` + howFleet + `

STATE is the state of the newest sandbox. RUNNING and RESTARTS count the newest
container of each name. KNOWN is the age of this information: it grows while the
pod cannot be inspected. DETAILS names the call that hangs, and since when.

With --watch on a terminal, the command redraws the table each second and after
each event. Otherwise it prints a pod again after each of its events; the state of
a removed pod is "gone".`

const podsExample = `  pleg-pipeline pods
  pleg-pipeline pods -n shop --watch --sort restarts
  pleg-pipeline pods shop/web-0 -o yaml
  pleg-pipeline pods -o json | jq 'select(.error) | .uid'
  pleg-pipeline pods -o go-template='{{.name}}{{range .containers}} {{.name}}={{.state}}{{end}}'`

// gone is the state of a pod that no longer exists.
const gone = "gone"

// maxReplayed and maxReplayedBytes limit the present state that a daemon sends, in pods and
// bytes of text.
const (
	maxReplayed      = 100_000
	maxReplayedBytes = 256 << 20
)

// errTooManyPods means that the daemon has more pods than a node can have.
var errTooManyPods = fmt.Errorf("the daemon sends more than %d pods or %d bytes", maxReplayed, maxReplayedBytes)

// podsCommand is the command pods with its flags.
type podsCommand struct {
	viewCommand

	watch bool
	sort  string
	names podNames
}

func (c *podsCommand) setArgs(args []string) { c.names = args }

func newPods(p Process) *cobra.Command {
	return newCommand(&podsCommand{viewCommand: viewCommand{process: p}}, &cobra.Command{
		Use:     "pods [NAME...]",
		Args:    podArgs,
		Short:   "Print the pods of this node and the age of this information",
		Long:    podsLong,
		Example: podsExample,
	})
}

func (c *podsCommand) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, "continue, and print each pod again after each of its events")
	enumFlag(cmd, &c.sort, "sort", "", "order: by name, most restarts, youngest, or oldest information first", "name", "restarts", "age", "known")
	c.filter.add(cmd)
	c.output.add(cmd, "pods", view.ParsePods)
	c.source.add(cmd)
	c.fleet.add(cmd)
	cmd.ValidArgsFunction = c.source.completePods(c.process)
	c.log.addQuiet(cmd)
}

func (c *podsCommand) run(ctx context.Context) error {
	if c.fleet.given() {
		return c.runFleet(ctx)
	}
	out := c.log.console(c.process.Err)
	return c.source.use(ctx, c.process, out, func(ctx context.Context, from source) error {
		err := printing(ctx, out, c.process.Out, func(ctx context.Context) error { return c.print(ctx, out, from) })
		if ctx.Err() != nil {
			sayReplayed(ctx, out)
			return nil // it was interrupted
		}
		return err
	})
}

func (c *podsCommand) print(ctx context.Context, out console, from source) error {
	now, err := current(ctx, from)
	if err != nil {
		return err
	}
	if c.watch && c.redraws() {
		return c.redraw(ctx, out, from, now)
	}
	pods := c.printer(c.process.Out)
	if err := c.printRows(pods, now.pods); err != nil {
		return err
	}
	c.saySick(ctx, out, c.rows(now.pods))
	if !c.watch {
		return nil
	}
	return c.follow(ctx, out, from, now.at, pods)
}

// printer returns the printer for the pods of one node or of a cluster.
func (c *podsCommand) printer(w io.Writer) view.Printer[view.Pod] {
	if c.fleet.given() {
		return view.FleetPodPrinter(w, c.output.options(c.process))
	}
	return view.PodPrinter(w, c.output.options(c.process))
}

// printRows prints the header and the selected pods.
func (c *podsCommand) printRows(p view.Printer[view.Pod], pods []view.Pod) error {
	rows := c.rows(pods)
	p.Fit(rows)
	if err := p.Start(); err != nil {
		return outputError(err)
	}
	for _, pod := range rows {
		if err := p.Print(pod); err != nil {
			return outputError(err)
		}
	}
	if len(c.names) > 0 && len(rows) == 0 {
		return fmt.Errorf("no pod has the name %s", strings.Join(c.names, ", "))
	}
	return nil
}

// saySick names the pods that cannot be inspected, below a table that may be longer than
// the screen.
func (c *podsCommand) saySick(ctx context.Context, out console, rows []view.Pod) {
	const most = 3
	var names []string
	for _, pod := range rows {
		if pod.Sick() {
			names = append(names, pod.Namespace+"/"+cmp.Or(pod.Name, string(pod.UID)))
		}
	}
	if len(names) == 0 || terminalWidth(c.process.Out) == 0 {
		return
	}
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	out.say(ctx, "%d of %d pods cannot be inspected: %s", len(names), len(rows), text)
}

// rows returns the selected pods in the order of --sort.
func (c *podsCommand) rows(pods []view.Pod) []view.Pod {
	var rows []view.Pod
	for _, pod := range pods {
		if c.wants(&pod) {
			rows = append(rows, pod)
		}
	}
	slices.SortStableFunc(rows, func(a, b view.Pod) int {
		order := 0
		switch c.sort {
		case "restarts":
			order = cmp.Compare(b.Restarts, a.Restarts)
		case "age":
			order = b.CreatedAt().Compare(a.CreatedAt())
		case "known":
			order = a.CurrentAsOf.Compare(b.CurrentAsOf)
		}
		return cmp.Or(order, cmp.Compare(a.Node, b.Node), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

func (c *podsCommand) wants(pod *view.Pod) bool {
	return pod.Wanted(&c.filter.applied) && c.names.wants(pod.UID, pod.Namespace, pod.Name)
}

// currentState is the state of a node and its position in the event stream.
type currentState struct {
	pods []view.Pod
	// at is nil if there was no event yet.
	at *client.Position
}

// current returns all pods with the last event of each.
func current(ctx context.Context, from source) (currentState, error) {
	ctx, cancel := answerWithin(ctx)
	defer cancel()
	var state currentState
	size := 0
	var disconnected error
	last := make(map[pleg.PodUID]pleg.Event)
	o := client.WatchOptions{Name: Name + "-pods", Replay: true, Disconnected: func(err error, _ time.Duration) {
		disconnected = err
		cancel()
	}}
	replaying, stop := untilOnlyHung(ctx, from)
	defer stop()
	synced := false
	for ev, err := range from.events(replaying, o) {
		if err != nil && context.Cause(replaying) == nil {
			return state, err
		}
		if at, ok := ev.Position(); ok && err == nil {
			state.at = &at
		}
		if synced = ev.Type == pleg.Synced; synced || err != nil {
			break
		}
		last[ev.PodUID] = ev // sequence numbers only grow
		if size += textSize(ev); len(last) > maxReplayed || size > maxReplayedBytes {
			return state, errTooManyPods
		}
	}
	if !synced && !errors.Is(context.Cause(replaying), errOnlyHung) {
		return state, cmp.Or(disconnected, context.Cause(ctx), pleg.ErrStopped)
	}
	var err error
	if state.pods, err = from.pods(ctx); err != nil {
		return state, err
	}
	for i := range state.pods {
		if ev, ok := last[state.pods[i].UID]; ok {
			state.pods[i] = withEvent(state.pods[i], ev)
		}
	}
	return state, nil
}

// textSize returns the number of bytes of the text of an event.
func textSize(ev pleg.Event) int {
	return len(ev.Epoch) + len(ev.PodUID) + len(ev.PodName) + len(ev.PodNamespace) + len(ev.ContainerID) + len(ev.ContainerName) + len(ev.Reason)
}

// withEvent adds what an event says about a pod. The name of a pod that is gone comes
// only from its events.
func withEvent(pod view.Pod, ev pleg.Event) view.Pod {
	pod.LastEvent = &ev
	pod.Name = cmp.Or(pod.Name, ev.PodName)
	pod.Namespace = cmp.Or(pod.Namespace, ev.PodNamespace)
	if pod.CurrentAsOf.IsZero() {
		pod.CurrentAsOf = ev.ObservedAt
	}
	return pod
}

// follow prints each pod after each of its events.
func (c *podsCommand) follow(ctx context.Context, out console, from source, at *client.Position, pods view.Printer[view.Pod]) error {
	f := follower{out: out}
	rows := make(map[pleg.PodUID]string)
	o := client.WatchOptions{Name: Name + "-pods", After: at, Filter: c.filter.Filter}
	return f.each(ctx, from, o, func(ev pleg.Event) error {
		if ev.PodUID == "" || !c.names.wants(ev.PodUID, ev.PodNamespace, ev.PodName) {
			return nil
		}
		pod, ok, err := from.pod(ctx, ev.PodUID)
		if err != nil {
			f.sayDisconnected(ctx, err) // a later event reports the reconnection
			return nil
		}
		if !ok {
			pod = view.Pod{UID: ev.PodUID, State: gone}
		}
		pod = withEvent(pod, ev)
		// A change has several events, one for each container. Text shows no difference.
		if row := rowOf(pod); c.output.format.Kind() == view.Text && rows[pod.UID] == row {
			return nil
		} else if pod.State == gone || len(rows) == maxReplayed {
			delete(rows, pod.UID)
		} else {
			rows[pod.UID] = row
		}
		return outputError(pods.Print(pod))
	})
}

// rowOf returns what text shows of a pod, but its ages.
func rowOf(pod view.Pod) string {
	pod.LastEvent, pod.CurrentAsOf = nil, time.Time{}
	text, _ := json.Marshal(pod) // it has no value that JSON cannot have
	return string(text)
}
