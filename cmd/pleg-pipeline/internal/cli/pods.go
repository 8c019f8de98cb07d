package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
)

const podsLong = `Print the pods of this node: what their sandbox and containers do, how often
containers were restarted, the last event, the error if the last inspection
failed, and how old this knowledge is.

` + howConnected + `

STATE is that of the newest sandbox. RUNNING counts the newest container of each
name. KNOWN is the age of the knowledge: it grows while a pod cannot be
inspected. With --watch a pod is printed again whenever something happens to it;
in the end its state is "gone".`

const podsExample = `  pleg-pipeline pods
  pleg-pipeline pods -n shop -o wide --watch
  pleg-pipeline pods -o json | jq 'select(.error) | .uid'
  pleg-pipeline pods -o go-template='{{.name}}{{range .containers}} {{.name}}={{.state}}{{end}}'`

// gone is the state of a pod that is not there any more.
const gone = "gone"

// podsTimeout bounds what a daemon may take to tell the present state.
const podsTimeout = 30 * time.Second

// podsCommand is the command pods with its flags.
type podsCommand struct {
	process Process
	source  sourceFlags
	filter  podFilter
	log     logFlags

	watch     bool
	output    printer.Format
	noHeaders bool
	wanted    podview.Filter // made by validate
}

func newPods(p Process) *cobra.Command {
	c := podsCommand{process: p}
	cmd := &cobra.Command{
		Use:     "pods",
		Short:   "Print the pods of this node and how old that knowledge is",
		Long:    podsLong,
		Example: podsExample,
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

func (c *podsCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&c.watch, "watch", "w", false, "go on and print each pod again when something happens to it")
	c.filter.add(cmd)
	outputFlag(cmd, &c.output, "pods", printer.ParsePods)
	flags.BoolVar(&c.noHeaders, "no-headers", false, "leave out the line of column names")
	c.source.add(cmd)
	c.log.addQuiet(cmd)
}

func (c *podsCommand) validate(flags *pflag.FlagSet) error {
	if err := c.source.validate(flags); err != nil {
		return err
	}
	if err := c.filter.validate(); err != nil {
		return err
	}
	c.wanted.Namespaces = c.filter.namespaces
	return c.wanted.Select(c.filter.selector)
}

func (c *podsCommand) run(ctx context.Context) error {
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
	pods := printer.Pods(c.process.Out, printer.Options{
		Format: c.output, Headers: !c.noHeaders, Color: colorWanted(c.process.Out, c.process.Getenv),
	})
	now, err := present(ctx, from)
	if err != nil {
		return err
	}
	if err := pods.Start(); err != nil {
		return outputError(err)
	}
	for _, pod := range now.pods {
		if c.wanted.Wants(&pod) {
			if err := pods.Print(pod); err != nil {
				return outputError(err)
			}
		}
	}
	if !c.watch {
		return nil
	}
	return c.follow(ctx, out, from, now, pods)
}

// presentState is the state of a node and the place in the stream it is of.
type presentState struct {
	pods []podview.Pod
	at   client.Position
}

// present returns all pods, in the order of namespaces and names, with the last
// event of each.
func present(ctx context.Context, from source) (presentState, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, podsTimeout, errors.New("the daemon does not answer"))
	defer cancel()
	var state presentState
	var lost error
	last := make(map[pipeline.PodUID]pipeline.Event)
	o := client.WatchOptions{Name: Name + "-pods", Replay: true, Disconnected: func(err error, _ time.Duration) {
		lost = err
		cancel()
	}}
	for ev, err := range from.events(ctx, o) {
		if err != nil {
			return state, err
		}
		if ev.Type == pipeline.Synced {
			state.at = client.Position{Epoch: ev.Epoch, Seq: ev.Seq}
			break
		}
		last[ev.PodUID] = ev // sequence numbers only grow
	}
	if state.at.Epoch == "" {
		return state, cmp.Or(lost, context.Cause(ctx), pipeline.ErrStopped)
	}
	var err error
	if state.pods, err = from.pods(ctx); err != nil {
		return state, err
	}
	for i := range state.pods {
		if ev, ok := last[state.pods[i].UID]; ok {
			state.pods[i] = with(state.pods[i], ev)
		}
	}
	slices.SortStableFunc(state.pods, func(a, b podview.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return state, nil
}

// with adds what an event knows of a pod. A pod whose inspection failed has no
// name of its own.
func with(pod podview.Pod, ev pipeline.Event) podview.Pod {
	pod.LastEvent = &ev
	pod.Name = cmp.Or(pod.Name, ev.PodName)
	pod.Namespace = cmp.Or(pod.Namespace, ev.PodNamespace)
	if pod.CurrentAsOf.IsZero() {
		pod.CurrentAsOf = ev.ObservedAt
	}
	return pod
}

// follow prints pods to which something happens.
func (c *podsCommand) follow(ctx context.Context, out console, from source, now presentState, pods printer.Printer[podview.Pod]) error {
	f := follower{out: out}
	o := client.WatchOptions{
		Name: Name + "-pods", After: &now.at, Namespaces: c.filter.namespaces, Selector: c.filter.selector,
		Disconnected: func(err error, _ time.Duration) { f.disconnected(ctx, err) },
	}
	for ev, err := range from.events(ctx, o) {
		if err != nil {
			return err
		}
		f.tell(ctx, ev)
		if ev.PodUID == "" {
			continue
		}
		pod, err := from.pod(ctx, ev.PodUID)
		if err != nil {
			f.disconnected(ctx, err) // the events will tell when it is back
			continue
		}
		if pod.Name == "" && pod.Error == "" {
			pod.State = gone
		}
		if err := pods.Print(with(pod, ev)); err != nil {
			return outputError(err)
		}
	}
	return nil
}
