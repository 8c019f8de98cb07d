package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/top"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// howFleet is part of the help of every command that can show a cluster.
const howFleet = `
With --fleet, the events and pods are those of all nodes that publish on a NATS
server ("pleg-pipeline run --nats"), or of those named by --node.`

type fleetFlags struct {
	natsFlags

	stream     string // a mirror
	nodes      []string
	namespaces []string        // the namespaces of the pods to read; if empty, all
	after      *fleet.Position // --since of events
}

func (f *fleetFlags) add(cmd *cobra.Command) {
	f.natsFlags.add(cmd, "fleet", "show the nodes that publish on the NATS server with this `URL`")
	f.others = append(f.others, "cluster", "node", "nats-stream")
	cmd.Flags().StringVar(&f.cluster, "cluster", "", "the `NAME` of the cluster, for --fleet")
	cmd.Flags().StringVar(&f.stream, "nats-stream", "", "read the mirror of the stream with this `NAME`")
	cmd.Flags().StringSliceVar(&f.nodes, "node", nil, "only this `NODE`, for --fleet; may be repeated")
}

func (f *fleetFlags) validate(flags *pflag.FlagSet, source *sourceFlags) error {
	if given := source.runtime.given(flags); f.given() && (given != "" || source.connect != "") {
		return fmt.Errorf("--fleet cannot be combined with %s: the nodes have their own daemons", cmp.Or(given, "--connect"))
	}
	return f.natsFlags.validate(flags)
}

// use calls fn with the cluster. With pods, the server must answer first.
func (f *fleetFlags) use(ctx context.Context, out console, pods bool, fn func(context.Context, source) error) error {
	return f.natsFlags.use(ctx, out, pods, func(ctx context.Context, js jetstream.JetStream) (err error) {
		from := fleetSource{flags: f, js: js, out: out}
		if pods {
			if from.states, err = f.openStates(ctx, js); err != nil {
				return interrupted(ctx, out, err)
			}
		}
		return fn(ctx, from)
	})
}

// openStates returns the states of the cluster. A cluster or node that has not published is an
// error: its name is probably wrong.
func (f *fleetFlags) openStates(ctx context.Context, js jetstream.JetStream) (*fleet.States, error) {
	states, err := fleet.OpenStates(ctx, js, f.cluster, f.stream)
	if err != nil {
		return nil, err
	}
	return states, states.Check(ctx, f.nodes)
}

type fleetSource struct {
	flags  *fleetFlags
	js     jetstream.JetStream
	states *fleet.States // nil if only events are asked for
	out    console
}

// Events implements [top.Source]. Unless the states are open, the names of the cluster and its nodes are
// checked once the watch is connected.
func (s fleetSource) Events(ctx context.Context, o pleg.SubscribeOptions, disconnected top.Disconnected) iter.Seq2[fleet.Event, error] {
	return func(yield func(fleet.Event, error) bool) {
		checked := s.states != nil
		for ev, err := range s.watch(ctx, o, disconnected) {
			if !checked && (ev.Type == pleg.Synced || ev.Type == pleg.Bookmark) {
				checked = true
				if len(s.flags.nodes) > 0 { // otherwise it waits for a first node
					_, err = s.flags.openStates(ctx, s.js)
				}
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

func (s fleetSource) watch(ctx context.Context, o pleg.SubscribeOptions, disconnected top.Disconnected) iter.Seq2[fleet.Event, error] {
	return fleet.Watch(ctx, s.js, s.watchOptions(ctx, o, disconnected))
}

func (s fleetSource) watchOptions(ctx context.Context, o pleg.SubscribeOptions, disconnected top.Disconnected) fleet.WatchOptions {
	unreadable := false
	return fleet.WatchOptions{
		Cluster: s.flags.cluster, Stream: s.flags.stream, Nodes: s.flags.nodes, Replay: o.Replay, After: s.flags.after, Since: o.Since, Bookmarks: o.Bookmarks,
		Filter:       o.Filter,
		Disconnected: disconnected,
		Unreadable: func(err error) {
			if !unreadable { // one notice, however much cannot be read
				unreadable = true
				s.out.say(ctx, "%v; this and other messages that this program cannot read are skipped", err)
			}
		},
	}
}

var errNoServer = errors.New("the server does not answer")

// State implements [top.Source]. The problem is the worst verdict of a node, as the doctor reports
// it.
func (s fleetSource) State(ctx context.Context) (state top.State, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoServer)
	defer cancel()
	for pod, err := range s.states.Pods(ctx, s.flags.nodes, s.flags.namespaces) {
		if err != nil {
			return state, err
		}
		state.Pods = append(state.Pods, fleetPod(pod))
	}
	nodes, err := s.nodes(ctx)
	var silent []string
	for _, n := range nodes {
		if n.Silent {
			silent = append(silent, n.Name)
		}
	}
	state.Cluster = &top.Cluster{Figures: [][2]string{{"nodes", strconv.Itoa(len(nodes))}, {"silent", silentNodes(silent)}}}
	if ranked := doctor.Rank(nodes, time.Now()); !ranked.Healthy() {
		_, state.Cluster.Problem, _ = strings.Cut(ranked.Verdict, ": ")
	}
	return state, err
}

func fleetPod(pod fleet.Pod) view.Pod {
	shown := view.NewPod(cache.Entry{
		UID: pod.UID, Status: pod.Status, Err: pod.Err, CurrentAsOf: pod.CurrentAsOf, Last: pod.Status, LastAsOf: pod.CurrentAsOf,
	})
	shown.Error = pod.Partial
	shown.Node, shown.Name, shown.Namespace = pod.Node, cmp.Or(shown.Name, pod.Name), cmp.Or(shown.Namespace, pod.Namespace)
	if pod.Finding != nil {
		shown.SetFinding(*pod.Finding)
	}
	return shown
}

// Status implements [statusSource]: a cluster has none.
func (fleetSource) Status(context.Context) (pleg.Status, error) { return pleg.Status{}, nil }

func (s fleetSource) nodes(ctx context.Context) ([]fleet.Node, error) {
	all, err := s.states.Nodes(ctx)
	wanted := s.flags.nodes
	return slices.DeleteFunc(all, func(n fleet.Node) bool { return len(wanted) > 0 && !slices.Contains(wanted, n.Name) }), err
}

// silentNodes returns the number of silent nodes, and the names of the first few.
func silentNodes(names []string) string {
	const most = 3
	n := len(names)
	if n == 0 {
		return "0"
	}
	if n > most {
		names = append(names[:most], "...")
	}
	return fmt.Sprintf("%d (%s)", n, strings.Join(names, ", "))
}
