package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// howFleet is part of the help of every command that can show a cluster.
const howFleet = `
With --fleet, the events and pods are those of all nodes that publish on a NATS
server ("pleg-pipeline run --nats"), or of those named by --node.`

// fleetFlags select the nodes of a cluster.
type fleetFlags struct {
	natsFlags

	nodes []string
}

func (f *fleetFlags) add(cmd *cobra.Command) {
	f.natsFlags.add(cmd, "fleet", "show the nodes that publish on the NATS server with this `URL`")
	f.places = []string{"cluster", "node"}
	cmd.Flags().StringVar(&f.cluster, "cluster", "", "the `NAME` of the cluster, for --fleet")
	cmd.Flags().StringSliceVar(&f.nodes, "node", nil, "only this `NODE`, for --fleet; may be repeated")
}

func (f *fleetFlags) validate(flags *pflag.FlagSet, source *sourceFlags) error {
	if err := f.natsFlags.validate(flags); err != nil {
		return err
	}
	if !f.given() {
		return nil
	}
	if given := source.runtime.given(flags); given != "" || source.connect != "" {
		return fmt.Errorf("--fleet cannot be combined with %s: the nodes have their own daemons", cmp.Or(given, "--connect"))
	}
	return nil
}

// fleetFollower prints the events of a cluster.
type fleetFollower struct {
	out     console
	printer view.Printer[fleet.Event]
	marks   bool

	disconnected bool
	unreadable   bool
	last         atomic.Pointer[fleet.Position]
}

// runFleet prints the events of a cluster until ctx ends.
func (c *eventsCommand) runFleet(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	conn, err := c.fleet.connect(out.log)
	if err != nil {
		return fmt.Errorf("--fleet: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("--fleet: %w", err)
	}
	f := fleetFollower{
		out: out, marks: c.output.format.Kind() != view.Template,
		printer: view.FleetEventPrinter(c.process.Out, c.output.options(c.process)),
	}
	o := fleet.WatchOptions{
		Cluster: c.fleet.cluster, Nodes: c.fleet.nodes, Replay: c.replay, After: c.fleetAfter, Bookmarks: true,
		Filter: c.options.Filter,
	}
	err = printing(ctx, out, c.process.Out, func(ctx context.Context) error { return f.follow(ctx, js, o) })
	if ctx.Err() == nil {
		return err
	}
	if last := f.last.Load(); last != nil {
		out.say(ctx, "%v: to continue, use --since %v", context.Cause(ctx), last)
	}
	return nil
}

func (f *fleetFollower) follow(ctx context.Context, js jetstream.JetStream, o fleet.WatchOptions) error {
	if err := f.printer.Start(); err != nil {
		return outputError(err)
	}
	o.Disconnected = func(err error, _ time.Duration) { f.sayDisconnected(ctx, err) }
	o.Unreadable = func(err error) { f.sayUnreadable(ctx, err) }
	for ev, err := range fleet.Watch(ctx, js, o) {
		if err != nil {
			return err
		}
		f.sayConnected(ctx, ev)
		if f.wants(ev) {
			if err := f.printer.Print(ev); err != nil {
				return outputError(err)
			}
		}
		if ev.At != (fleet.Position{}) {
			f.last.Store(&ev.At)
		}
	}
	return nil
}

func (f *fleetFollower) wants(ev fleet.Event) bool {
	switch ev.Type {
	case pleg.Bookmark:
		return false
	case pleg.Synced, pleg.Gap:
		return f.marks
	default:
		return true
	}
}

// sayDisconnected prints one notice, however many attempts fail.
func (f *fleetFollower) sayDisconnected(ctx context.Context, err error) {
	if !f.disconnected {
		f.disconnected = true
		f.out.say(ctx, "%v; waiting for the server", err)
	}
}

// sayUnreadable prints one notice, however much cannot be read.
func (f *fleetFollower) sayUnreadable(ctx context.Context, err error) {
	if !f.unreadable {
		f.unreadable = true
		f.out.say(ctx, "%v; it is passed over, and so is all else that is not of this program", err)
	}
}

func (f *fleetFollower) sayConnected(ctx context.Context, ev fleet.Event) {
	if f.disconnected {
		f.disconnected = false
		f.out.say(ctx, "connected to the server")
	}
	if ev.Type == pleg.Gap && ev.Node == "" {
		f.out.say(ctx, "events are missing because the server no longer has them; the current state follows")
	}
}

// use calls with with the states of the cluster.
func (f *fleetFlags) use(ctx context.Context, out console, with func(context.Context, jetstream.JetStream, *fleet.States) error) error {
	conn, err := f.connectNow(ctx, out.log)
	if err != nil {
		return interrupted(ctx, out, err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("--fleet: %w", err)
	}
	states, err := fleet.OpenStates(ctx, js, f.cluster)
	if err != nil {
		return interrupted(ctx, out, err)
	}
	return with(ctx, js, states)
}

// runFleet prints the pods of a cluster.
func (c *podsCommand) runFleet(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	err := c.fleet.use(ctx, out, func(ctx context.Context, js jetstream.JetStream, states *fleet.States) error {
		return printing(ctx, out, c.process.Out, func(ctx context.Context) error { return c.printFleet(ctx, out, js, states) })
	})
	if ctx.Err() != nil {
		return nil // it was interrupted
	}
	return err
}

func (c *podsCommand) printFleet(ctx context.Context, out console, js jetstream.JetStream, states *fleet.States) error {
	read := func(ctx context.Context) ([]view.Pod, error) {
		return fleetPods(ctx, states, c.fleet.nodes, c.filter.Namespaces)
	}
	if c.watch && c.redraws() {
		return c.redrawFleet(ctx, out, js, read)
	}
	pods := c.printer(c.process.Out)
	printAll := func() error {
		all, err := read(ctx)
		if err != nil {
			return err
		}
		return c.printRows(pods, all)
	}
	if !c.watch {
		return printAll()
	}
	return c.followFleet(ctx, out, js, printAll, func(ev fleet.Event) error { return printFleetPod(ctx, states, pods, ev) })
}

// redrawFleet is redraw for the pods of a cluster.
func (c *podsCommand) redrawFleet(ctx context.Context, out console, js jetstream.JetStream, read func(context.Context) ([]view.Pod, error)) error {
	all, err := read(ctx)
	if err != nil {
		return err
	}
	events := make(chan pleg.Event)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(events)
		return c.followFleet(ctx, out, js, nil, func(ev fleet.Event) error {
			select {
			case events <- ev.Event:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	group.Go(func() error { return c.drawTables(ctx, read, all, nil, events) })
	return group.Wait()
}

// followFleet calls with for each event of a selected pod. If synced is not nil, followFleet
// calls it first, once it can miss no later event.
func (c *podsCommand) followFleet(ctx context.Context, out console, js jetstream.JetStream, synced func() error, with func(fleet.Event) error) error {
	f := fleetFollower{out: out}
	o := fleet.WatchOptions{
		Cluster: c.fleet.cluster, Nodes: c.fleet.nodes, Replay: synced != nil, Filter: c.filter.Filter,
		Disconnected: func(err error, _ time.Duration) { f.sayDisconnected(ctx, err) },
		Unreadable:   func(err error) { f.sayUnreadable(ctx, err) },
	}
	for ev, err := range fleet.Watch(ctx, js, o) {
		if err != nil {
			return err
		}
		f.sayConnected(ctx, ev)
		switch {
		case ev.Type == pleg.Synced && synced != nil:
			err, synced = synced(), nil
		case synced == nil && ev.PodUID != "" && c.names.wants(ev.PodUID, ev.PodNamespace, ev.PodName):
			err = with(ev)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fleetPods reads all pods of the selected nodes and namespaces.
func fleetPods(ctx context.Context, states *fleet.States, nodes, namespaces []string) ([]view.Pod, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errors.New("the server does not answer"))
	defer cancel()
	var all []view.Pod
	for pod, err := range states.Pods(ctx, nodes, namespaces) {
		if err != nil {
			return nil, err
		}
		all = append(all, fleetPod(pod, pod.LastEvent))
	}
	return all, nil
}

// printFleetPod prints the pod of an event as it is now.
func printFleetPod(ctx context.Context, states *fleet.States, pods view.Printer[view.Pod], ev fleet.Event) error {
	pod, ok, err := states.Pod(ctx, ev.Node, ev.PodNamespace, ev.PodUID)
	if err != nil {
		return err
	}
	pod.Node, pod.UID = ev.Node, ev.PodUID
	known := fleetPod(pod, ev.Event)
	if !ok {
		known.State = gone
	}
	return outputError(pods.Print(known))
}

// fleetPod returns the view of a pod.
func fleetPod(pod fleet.Pod, last pleg.Event) view.Pod {
	known := withEvent(view.NewPod(cache.Entry{
		UID: pod.UID, Status: pod.Status, Err: pod.Err, CurrentAsOf: pod.CurrentAsOf, Last: pod.Status, LastAsOf: pod.CurrentAsOf,
	}), last)
	known.Node, known.Name, known.Namespace = pod.Node, cmp.Or(known.Name, pod.Name), cmp.Or(known.Namespace, pod.Namespace)
	return known
}
