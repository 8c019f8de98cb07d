//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
)

// Each step in the life of a pod is reported, also of one without the kubelet's labels.
func TestLifeOfPod(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	f.run(ctx, instanceOptions{name: "polling", settings: polling})
	f.runPods(ctx, 1)
	livesOfContainers(ctx, f)
	livesOfSandboxes(ctx, f)
	foreign, err := f.lab.RunPod(ctx, lab.PodSpec{Name: "foreign", Foreign: true, HostNetwork: true})
	f.step(ctx, err)
	c := f.runContainer(ctx, foreign, lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
	f.awaitAll(ctx)
	f.step(ctx, f.lab.Trigger(ctx, c))
	f.step(ctx, f.lab.StopPod(ctx, foreign))
	f.step(ctx, f.lab.RemovePod(ctx, foreign))
}

// livesOfContainers restarts a container once for each way to end.
func livesOfContainers(ctx context.Context, f *fixture) {
	t, l, pod := f.t, f.lab, f.pods[0]
	t.Helper()
	for _, life := range []struct {
		name string
		spec lab.ContainerSpec
		end  func(context.Context, *lab.Container) error
	}{
		{"exit 0", lab.ContainerSpec{Program: lab.Exit(0)}, l.Trigger},
		{"exit 7", lab.ContainerSpec{Program: lab.Exit(7)}, l.Trigger},
		{"out of memory", lab.ContainerSpec{Program: lab.EatMemory(), MemoryLimit: 32 << 20}, l.Trigger},
		{"killed", lab.ContainerSpec{Program: lab.Pause()}, l.Kill},
		{"stopped", lab.ContainerSpec{Program: lab.Pause()}, l.StopContainer},
	} {
		t.Log("container:", life.name)
		life.spec.Name, life.spec.Attempt = "main", uint32(len(pod.Containers()))
		c, err := l.CreateContainer(ctx, pod, life.spec)
		f.step(ctx, err)
		f.step(ctx, l.StartContainer(ctx, c))
		f.step(ctx, life.end(ctx, c))
	}
	f.step(ctx, l.RemoveContainer(ctx, oldest(pod)))
}

// livesOfSandboxes kills the sandbox of a pod under a running container, unless it
// has no process, and gives the pod its next sandbox.
func livesOfSandboxes(ctx context.Context, f *fixture) {
	t, l, pod := f.t, f.lab, f.pods[0]
	t.Helper()
	side := f.runContainer(ctx, pod, lab.ContainerSpec{Name: "side", Program: lab.Pause()})
	f.awaitAll(ctx)
	if l.Traits().SandboxProcess {
		f.step(ctx, l.KillSandbox(ctx, pod))
	}
	f.step(ctx, l.StopContainer(ctx, side))
	second, err := l.RunPod(ctx, lab.PodSpec{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, Attempt: 1})
	f.step(ctx, err)
	f.runContainer(ctx, second, lab.ContainerSpec{Name: "main", Attempt: 6, Program: lab.Pause()})
	f.awaitAll(ctx)
	f.step(ctx, l.RemovePod(ctx, pod))
	f.step(ctx, l.StopPod(ctx, second)) // its container still runs
	f.step(ctx, l.RemovePod(ctx, second))
}

// If 50 pods change at the same time, each step is reported once, in order.
func TestFiftyPodsChangeAtOnce(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	f.run(ctx, instanceOptions{name: "polling", settings: polling})
	f.runPods(ctx, 50)
	for attempt := range uint32(2) {
		f.runContainers(ctx, func(i int) lab.ContainerSpec {
			return lab.ContainerSpec{Name: "main", Attempt: attempt, Program: lab.Exit(uint8(i % 5))}
		})
		f.triggerAll(ctx)
	}
	f.stopPods(ctx)
	f.removePods(ctx)
}

// With events, containers that live for less than 50 ms and
// are removed at once are reported. The log says how many of them polling reports.
func TestEventsReportShortContainers(t *testing.T) {
	const containers = 50
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	in := f.run(ctx, instanceOptions{name: "events", settings: rareLists})
	each := f.run(ctx, instanceOptions{name: "each second", settings: load.Settings{"relist-period": "1s"}, incomplete: true})
	in.criEvents = f.receiveCRIEvents(ctx)
	f.runPods(ctx, 5)
	polled := 0
	for i := range containers {
		c, err := l.RunContainer(ctx, f.pods[i%len(f.pods)], lab.ContainerSpec{
			Name: fmt.Sprint("short-", i), Program: lab.ExitAfter(uint8(i), 20*time.Millisecond),
		})
		must(t, err)
		must(t, l.AwaitDied(ctx, c))
		must(t, removeDead(ctx, l, c))
	}
	f.awaitAll(ctx)
	f.checkExitCodes(ctx, in)
	for _, e := range l.History().All() {
		if e.Step == lab.Died && !e.Sandbox && each.reportedEnd(e.ContainerID) {
			polled++
		}
	}
	t.Logf("of %d containers, polling each second reported the end of %d", containers, polled)
}
