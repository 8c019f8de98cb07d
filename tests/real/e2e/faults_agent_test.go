//go:build linux

package e2e_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// agentFaults break the agent.
var agentFaults = []fault{
	{name: "the agent stopped for 10 s", instances: agents(instanceOptions{}), pods: 5, run: stoppedAgent},
	{name: "the agent stopped while events pile up", instances: agents(instanceOptions{})[1:], pods: 20, run: stoppedAgentBlocksEvents},
	{name: "the agent out of files as containerd restarts", instances: agents(instanceOptions{}), pods: 5, run: outOfFiles},
	{
		name: "two agents of each kind on one runtime", pods: 10, run: twoAgents,
		instances: slices.Concat(agents(instanceOptions{name: "first"}), agents(instanceOptions{name: "second"})),
	},
}

// agents are an agent that polls and an agent that follows the CRI events.
func agents(o instanceOptions) []instanceOptions {
	poll, follow := o, o
	poll.name, follow.name = strings.TrimSpace(o.name+" polling"), strings.TrimSpace(o.name+" events")
	poll.settings, follow.settings = quick, quick.With(withEvents)
	follow.follows = true
	return []instanceOptions{poll, follow}
}

// stoppedAgent: afterwards the polling agent reports the changes that lists show. The other one
// also reports the CRI events that queued up, unless a list came first.
func stoppedAgent(ctx context.Context, f *fixture) {
	t, l := f.t, f.lab
	polling, following := f.instances[0], f.instances[1]
	f.pauseAgents()
	from := time.Now()
	hidden := f.changeWhileStopped(ctx)
	must(t, l.RemovePod(ctx, f.pods[4]))
	f.sleepIntoFault(ctx, 10*time.Second)
	polling.paused = outage{from, time.Now()}
	following.paused = polling.paused
	f.continueAgents()
	f.checkAfterFault(ctx)
	// No list shows a pod that lived only during the outage.
	if n := polling.countEvents(hidden); n != 0 {
		t.Errorf("%s: %d events of a pod that no list has shown", polling.name, n)
	}
	if n := following.countEvents(hidden); n != 6 {
		t.Errorf("%s: %d events of a pod that lived during the outage, want 6", following.name, n)
	}
}

func (f *fixture) pauseAgents() {
	f.t.Helper()
	for _, p := range f.instances {
		must(f.t, p.Pause())
	}
}

func (f *fixture) continueAgents() {
	f.t.Helper()
	for _, p := range f.instances {
		must(f.t, p.Continue())
	}
}

// changeWhileStopped ends, starts and removes containers. It returns a pod that
// was created and removed.
func (f *fixture) changeWhileStopped(ctx context.Context) *lab.Pod {
	t, l, pods := f.t, f.lab, f.pods
	t.Helper()
	must(t, l.Trigger(ctx, oldest(pods[0])))
	f.runContainer(ctx, pods[1], lab.ContainerSpec{Name: "new", Program: lab.Pause()})
	job := f.runContainer(ctx, pods[2], lab.ContainerSpec{Name: "job", Program: lab.Exit(5)})
	must(t, l.Trigger(ctx, job))
	gone := oldest(pods[3])
	must(t, l.Kill(ctx, gone))
	must(t, removeDead(ctx, l, gone))
	hidden, err := l.RunPod(ctx, lab.PodSpec{Name: "secret"})
	must(t, err)
	f.runContainer(ctx, hidden, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	must(t, l.RemovePod(ctx, hidden))
	return hidden
}

// stoppedAgentBlocksEvents: if a client does not read its CRI events, containerd
// waits, and the pods with it, until the client reads or is gone. No event is
// lost.
func stoppedAgentBlocksEvents(ctx context.Context, f *fixture) {
	t, l := f.t, f.lab
	f.pauseAgents()
	from, before := time.Now(), len(l.History().All())
	var work errgroup.Group
	for i, p := range f.pods {
		work.Go(func() error { return randomLives(ctx, l, p, "more", uint64(i)) })
	}
	last, since := 0, time.Now()
	for time.Since(since) < 4*time.Second && time.Since(from) < 49*time.Second {
		must(t, backoff.Wait(ctx, 100*time.Millisecond))
		if n := len(l.History().All()); n != last {
			last, since = n, time.Now()
		}
	}
	t.Logf("after %d steps containerd did nothing for %v", last-before, time.Since(since).Round(time.Second))
	f.continueAgents()
	must(t, work.Wait())
	f.instances[0].paused = outage{from, time.Now()}
}

// outOfFiles: the agents lose the connection to containerd and cannot open another.
func outOfFiles(ctx context.Context, f *fixture) {
	t, victim, ended := f.t, oldest(f.pods[0]), oldest(f.pods[1])
	limits := make([]unix.Rlimit, len(f.instances))
	for i, a := range f.instances {
		must(t, unix.Prlimit(a.PID(), unix.RLIMIT_NOFILE, nil, &limits[i]))
		few := unix.Rlimit{Cur: 4, Max: limits[i].Max}
		must(t, unix.Prlimit(a.PID(), unix.RLIMIT_NOFILE, &few, nil))
	}
	f.lab.Crash()
	must(t, f.lab.KillProcess(ctx, victim))
	must(t, f.lab.Revive(ctx))
	must(t, f.lab.AwaitDied(ctx, victim))
	must(t, f.lab.Trigger(ctx, ended))
	must(t, backoff.Wait(ctx, 8*time.Second))
	for i, a := range f.instances {
		if a.reportedEnd(ended.ID) {
			t.Errorf("%s reported an end without a connection: the limit has no effect", a.name)
		}
		must(t, unix.Prlimit(a.PID(), unix.RLIMIT_NOFILE, &limits[i], nil))
	}
}

func twoAgents(ctx context.Context, f *fixture) {
	for attempt := range uint32(3) {
		f.changeContainers(ctx, attempt)
	}
	f.lab.Crash()
	must(f.t, f.lab.Revive(ctx))
	f.changeContainers(ctx, 3)
}

// outage is a time in which an instance did not run. Lists after it show the last step of
// each container, not the steps in between.
type outage struct{ from, to time.Time }

func (o outage) covers(e lab.Entry) bool { return e.Began.After(o.from) && e.Ended.Before(o.to) }
