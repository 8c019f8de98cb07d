//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// agentFaults break the agent.
var agentFaults = []fault{
	{name: "the agent stopped for 10 s", agent: true, pods: 5, run: stoppedAgent},
	{name: "the agent stopped while events pile up", agent: true, pods: 20, run: stoppedAgentBlocksEvents},
	{name: "the agent has 32 files", agent: true, pods: 20, run: fewFiles},
	{name: "the agent out of files as containerd restarts", agent: true, pods: 5, run: outOfFiles},
	{name: "the agent has little memory", agent: true, pods: 60, run: littleMemory},
	{name: "two agents of each kind on one runtime", agent: true, pods: 10, run: twoAgents},
}

// stoppedAgent: afterwards the polling agent reports what lists show. The other
// one also reports the CRI events that queued up, unless a list came first.
func stoppedAgent(ctx context.Context, f *fixture) {
	t, l := f.t, f.lab
	agents := f.startAgents(ctx, agentOptions{})
	polling, following := agents[0], agents[1]
	f.beginFault(ctx)
	f.signalAgents(agents, syscall.SIGSTOP)
	from := time.Now()
	hidden := f.changeWhileStopped(ctx)
	must(t, l.RemovePod(ctx, f.pods[4]))
	f.sleepIntoFault(ctx, 10*time.Second)
	polling.paused = outage{from: from, to: time.Now()}
	following.paused = outage{from: from, to: time.Now(), queued: true}
	f.endFault()
	f.signalAgents(agents, syscall.SIGCONT)
	f.checkAfterFault(ctx, false)
	// No list shows a pod that lived only during the outage.
	if n := len(polling.events(podUID(hidden))); n != 0 {
		t.Errorf("%s: %d events of a pod that no list has shown", polling.name, n)
	}
	if n := len(following.events(podUID(hidden))); n != 6 {
		t.Errorf("%s: %d events of a pod that lived during the outage, want 6", following.name, n)
	}
	f.changePods(ctx)
	f.stopAgents(agents)
}

// changeWhileStopped ends, starts and removes containers. It returns a pod that
// was created and removed.
func (f *fixture) changeWhileStopped(ctx context.Context) *lab.Pod {
	t, l, pods := f.t, f.lab, f.pods
	t.Helper()
	must(t, l.Trigger(ctx, oldest(pods[0])))
	_, err := l.RunContainer(ctx, pods[1], lab.ContainerSpec{Name: "new", Program: lab.Pause()})
	must(t, err)
	job, err := l.RunContainer(ctx, pods[2], lab.ContainerSpec{Name: "job", Program: lab.Exit(5)})
	must(t, err)
	must(t, l.Trigger(ctx, job))
	gone := oldest(pods[3])
	must(t, l.Kill(ctx, gone))
	must(t, removeDead(ctx, l, gone))
	hidden, err := l.RunPod(ctx, lab.PodSpec{Name: "secret"})
	must(t, err)
	_, err = l.RunContainer(ctx, hidden, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	must(t, err)
	must(t, l.RemovePod(ctx, hidden))
	return hidden
}

// stoppedAgentBlocksEvents: if a client does not read its CRI events, containerd
// waits, and the pods with it, until the client reads or is gone. No event is
// lost.
func stoppedAgentBlocksEvents(ctx context.Context, f *fixture) {
	t, l := f.t, f.lab
	agents := []*agent{f.startAgent(ctx, agentOptions{name: "events", events: true})}
	f.beginFault(ctx)
	f.signalAgents(agents, syscall.SIGSTOP)
	from, before := time.Now(), len(l.History().All())
	var work errgroup.Group
	for i, p := range f.pods {
		work.Go(func() error { return churn(ctx, l, p, fmt.Sprint("more-", i), from.Add(50*time.Second)) })
	}
	last, since := 0, time.Now()
	for time.Since(since) < 4*time.Second && time.Since(from) < 49*time.Second {
		must(t, sleepUntil(ctx, time.Now().Add(100*time.Millisecond)))
		if n := len(l.History().All()); n != last {
			last, since = n, time.Now()
		}
	}
	t.Logf("after %d steps containerd did nothing for %v", last-before, time.Since(since).Round(time.Second))
	f.endFault()
	f.signalAgents(agents, syscall.SIGCONT)
	must(t, work.Wait())
	agents[0].paused = outage{from: from, to: time.Now(), queued: true}
	f.checkAfterFault(ctx, false)
	f.changePods(ctx)
	f.stopAgents(agents)
}

// restartWithDeath kills containerd and a container, and starts containerd again.
func (f *fixture) restartWithDeath(ctx context.Context) {
	t, l, victim := f.t, f.lab, oldest(f.pods[0])
	t.Helper()
	l.Crash()
	must(t, l.KillProcess(ctx, victim))
	must(t, l.Revive(ctx))
	must(t, l.AwaitDied(ctx, victim))
}

func fewFiles(ctx context.Context, f *fixture) {
	t := f.t
	agents := f.startAgents(ctx, agentOptions{shell: "ulimit -n 32;"})
	f.beginFault(ctx)
	f.changeContainers(ctx, 0)
	f.restartWithDeath(ctx)
	f.awaitAll(ctx)
	f.changeContainers(ctx, 1)
	f.endFault()
	f.checkAfterFault(ctx, false)
	for _, a := range agents {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid))
		must(t, err)
		t.Logf("%s has %d files open", a.name, len(files))
	}
	f.changePods(ctx)
	f.stopAgents(agents)
}

// outOfFiles: the agents lose the connection to containerd and cannot open
// another one.
func outOfFiles(ctx context.Context, f *fixture) {
	t, ended := f.t, oldest(f.pods[1])
	agents := f.startAgents(ctx, agentOptions{})
	f.beginFault(ctx)
	limits := make([]unix.Rlimit, len(agents))
	for i, a := range agents {
		must(t, unix.Prlimit(a.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &limits[i]))
		few := unix.Rlimit{Cur: 4, Max: limits[i].Max}
		must(t, unix.Prlimit(a.cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil))
	}
	f.restartWithDeath(ctx)
	must(t, f.lab.Trigger(ctx, ended))
	must(t, sleepUntil(ctx, time.Now().Add(8*time.Second)))
	for i, a := range agents {
		if a.reportedEnd(ended.ID) {
			t.Errorf("%s reported an end without a connection: the limit has no effect", a.name)
		}
		must(t, unix.Prlimit(a.cmd.Process.Pid, unix.RLIMIT_NOFILE, &limits[i], nil))
	}
	f.endFault()
	f.checkAfterFault(ctx, false)
	f.changePods(ctx)
	f.stopAgents(agents)
}

// littleMemory limits the memory of the garbage collector, and of the process to
// three times as much.
func littleMemory(ctx context.Context, f *fixture) {
	t, l := f.t, f.lab
	agents := f.startAgents(ctx, agentOptions{env: []string{"GOMEMLIMIT=16MiB"}, memory: 48 << 20})
	f.beginFault(ctx)
	f.changeContainers(ctx, 0)
	l.Crash()
	must(t, l.Revive(ctx))
	f.changeContainers(ctx, 1)
	f.endFault()
	f.checkAfterFault(ctx, false)
	for _, a := range agents {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
		must(t, err)
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "VmHWM") {
				t.Logf("%s, with %d pods, GOMEMLIMIT=16MiB and 48 MiB of memory: %s", a.name, len(f.pods), strings.TrimSpace(line))
			}
		}
	}
	f.stopAgents(agents)
}

func twoAgents(ctx context.Context, f *fixture) {
	agents := append(f.startAgents(ctx, agentOptions{name: "first"}), f.startAgents(ctx, agentOptions{name: "second"})...)
	f.beginFault(ctx)
	for attempt := range uint32(3) {
		f.changeContainers(ctx, attempt)
	}
	f.lab.Crash()
	must(f.t, f.lab.Revive(ctx))
	f.changeContainers(ctx, 3)
	f.endFault()
	f.checkAfterFault(ctx, false)
	f.changePods(ctx)
	f.stopAgents(agents)
}
