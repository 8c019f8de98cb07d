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

// agentFaults are those of the program that watches.
var agentFaults = []fault{
	{name: "the agent stopped for 10 s", agent: true, pods: 5, run: stoppedAgent},
	{name: "the agent stopped while events pile up", agent: true, pods: 20, run: stoppedAgentHoldsUp},
	{name: "the agent has 32 files", agent: true, pods: 20, run: fewFiles},
	{name: "the agent out of files as containerd restarts", agent: true, pods: 5, run: outOfFiles},
	{name: "the agent has little memory", agent: true, pods: 60, run: littleMemory},
	{name: "two agents of each kind on one runtime", agent: true, pods: 10, run: twoAgents},
}

// stoppedAgent: what lists can find out is found out, with events all that waited
// unless a list came first; nothing twice.
func stoppedAgent(ctx context.Context, tr *trial) {
	t, l, pods := tr.t, tr.lab, tr.scene.pods
	all := tr.agents(ctx, agentOptions{})
	tr.inject(ctx)
	tr.signal(all, syscall.SIGSTOP)
	from := time.Now()
	must(t, l.Trigger(ctx, mainOf(pods[0]))) // an end
	_, err := l.RunContainer(ctx, pods[1], lab.ContainerSpec{Name: "new", Program: lab.Pause()})
	must(t, err)
	job, err := l.RunContainer(ctx, pods[2], lab.ContainerSpec{Name: "job", Program: lab.Exit(5)})
	must(t, err)
	must(t, l.Trigger(ctx, job))
	gone := mainOf(pods[3]) // an end, and nothing left of it
	must(t, l.Kill(ctx, gone))
	must(t, removeDead(ctx, l, gone))
	secret, err := l.RunPod(ctx, lab.PodSpec{Name: "secret"}) // a whole life
	must(t, err)
	_, err = l.RunContainer(ctx, secret, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	must(t, err)
	must(t, l.RemovePod(ctx, secret))
	must(t, l.RemovePod(ctx, pods[4]))
	must(t, sleepUntil(ctx, tr.injected.Add(10*time.Second)))
	for _, a := range all {
		a.stopped = blind{from: from, to: time.Now(), mayTell: a == all[1]}
	}
	tr.lift()
	tr.signal(all, syscall.SIGCONT)
	tr.end(ctx, false)
	// A whole life in the dark, of a sandbox and a container: no list shows it, but
	// the events of it have waited.
	if n := len(all[0].seen.events(podUID(secret))); n != 0 {
		t.Errorf("%s: %d events of a pod that no list has shown", all[0].seen.observer, n)
	}
	if n := len(all[1].seen.events(podUID(secret))); n != 6 {
		t.Errorf("%s: %d events of the pod that lived and went meanwhile, want 6", all[1].seen.observer, n)
	}
	tr.afterwards(ctx)
	tr.endAll(all)
}

func (tr *trial) signal(agents []*agent, sig syscall.Signal) {
	tr.t.Helper()
	for _, a := range agents {
		must(tr.t, a.program.cmd.Process.Signal(sig))
	}
}

func (tr *trial) endAll(agents []*agent) {
	tr.t.Helper()
	for _, a := range agents {
		a.checkEnd(tr.t)
	}
}

// stoppedAgentHoldsUp: a client that follows the events and does not read them
// makes containerd wait, and pods with it, until it reads or is gone. Nothing is
// lost by it.
func stoppedAgentHoldsUp(ctx context.Context, tr *trial) {
	t, l := tr.t, tr.lab
	a := tr.addAgent(ctx, agentOptions{name: "events", events: true})
	tr.inject(ctx)
	tr.signal([]*agent{a}, syscall.SIGSTOP)
	from, before := time.Now(), len(l.Ledger().All())
	var work errgroup.Group
	for i, p := range tr.scene.pods {
		work.Go(func() error { return rage(ctx, l, p, fmt.Sprint("more-", i), from.Add(50*time.Second)) })
	}
	last, since := 0, time.Now()
	for time.Since(since) < 4*time.Second && time.Since(from) < 49*time.Second {
		must(t, sleepUntil(ctx, time.Now().Add(100*time.Millisecond)))
		if n := len(l.Ledger().All()); n != last {
			last, since = n, time.Now()
		}
	}
	t.Logf("after %d steps containerd was %v without another", last-before, time.Since(since).Round(time.Second))
	tr.lift()
	tr.signal([]*agent{a}, syscall.SIGCONT)
	must(t, work.Wait())
	a.stopped = blind{from: from, to: time.Now(), mayTell: true}
	tr.end(ctx, false)
	tr.afterwards(ctx)
	a.checkEnd(t)
}

func fewFiles(ctx context.Context, tr *trial) {
	t, l := tr.t, tr.lab
	all := tr.agents(ctx, agentOptions{shell: "ulimit -n 32;"})
	tr.inject(ctx)
	tr.lifeGoesOn(ctx, 0)
	l.Crash()
	must(t, l.KillProcess(ctx, mainOf(tr.scene.pods[0])))
	must(t, l.Revive(ctx))
	must(t, l.AwaitDied(ctx, mainOf(tr.scene.pods[0])))
	tr.awaitAll(ctx)
	tr.lifeGoesOn(ctx, 1)
	tr.lift()
	tr.end(ctx, false)
	for _, a := range all {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.program.cmd.Process.Pid))
		must(t, err)
		t.Logf("%s has %d files open", a.seen.observer, len(files))
	}
	tr.afterwards(ctx)
	tr.endAll(all)
}

// outOfFiles: the connection to containerd is lost and no other can be made.
func outOfFiles(ctx context.Context, tr *trial) {
	t, l := tr.t, tr.lab
	all := tr.agents(ctx, agentOptions{})
	tr.inject(ctx)
	limits := make([]unix.Rlimit, len(all))
	for i, a := range all {
		must(t, unix.Prlimit(a.program.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &limits[i]))
		few := unix.Rlimit{Cur: 4, Max: limits[i].Max}
		must(t, unix.Prlimit(a.program.cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil))
	}
	l.Crash()
	must(t, l.KillProcess(ctx, mainOf(tr.scene.pods[0])))
	must(t, l.Revive(ctx))
	must(t, l.AwaitDied(ctx, mainOf(tr.scene.pods[0])))
	must(t, l.Trigger(ctx, mainOf(tr.scene.pods[1])))
	must(t, sleepUntil(ctx, time.Now().Add(8*time.Second)))
	for i, a := range all {
		if a.died(mainOf(tr.scene.pods[1]).ID) {
			t.Errorf("%s knows what it cannot: the limit does not bind", a.seen.observer)
		}
		must(t, unix.Prlimit(a.program.cmd.Process.Pid, unix.RLIMIT_NOFILE, &limits[i], nil))
	}
	tr.lift()
	tr.end(ctx, false)
	tr.afterwards(ctx)
	tr.endAll(all)
}

// littleMemory: the garbage collector is told to make do with little, and the
// kernel kills what takes three times as much.
func littleMemory(ctx context.Context, tr *trial) {
	t, l := tr.t, tr.lab
	all := tr.agents(ctx, agentOptions{env: []string{"GOMEMLIMIT=16MiB"}, memory: 48 << 20})
	tr.inject(ctx)
	tr.lifeGoesOn(ctx, 0)
	l.Crash()
	must(t, l.Revive(ctx))
	tr.lifeGoesOn(ctx, 1)
	tr.lift()
	tr.end(ctx, false)
	for _, a := range all {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.program.cmd.Process.Pid))
		must(t, err)
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "VmHWM") {
				t.Logf("%s, with %d pods, GOMEMLIMIT=16MiB and 48 MiB of memory: %s", a.seen.observer, len(tr.scene.pods), strings.TrimSpace(line))
			}
		}
	}
	tr.endAll(all)
}

func twoAgents(ctx context.Context, tr *trial) {
	all := append(tr.agents(ctx, agentOptions{name: "first"}), tr.agents(ctx, agentOptions{name: "second"})...)
	tr.inject(ctx)
	for attempt := range uint32(3) {
		tr.lifeGoesOn(ctx, attempt)
	}
	tr.lab.Crash()
	must(tr.t, tr.lab.Revive(ctx))
	tr.lifeGoesOn(ctx, 3)
	tr.lift()
	tr.end(ctx, false)
	tr.afterwards(ctx)
	tr.endAll(all)
}
