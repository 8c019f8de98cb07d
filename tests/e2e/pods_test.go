//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// The library and the program report each step in the life of a pod.
func TestLifeOfPod(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	f.runPipeline(runOptions{checkCache: true})
	prog := f.runProgram(ctx)
	f.runPods(ctx, 1)
	livesOfContainers(ctx, f)
	livesOfSandboxes(ctx, f)
	checkSummary(t, prog.interrupt(t))
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
		{"panic", lab.ContainerSpec{Program: lab.Panic()}, l.Trigger},
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

// A sandbox without the kubelet's labels is a pod like any other.
func TestPodsWithoutKubeletLabels(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	f.runPipeline(runOptions{checkCache: true})
	pod, err := l.RunPod(ctx, lab.PodSpec{Name: "foreign", Foreign: true, HostNetwork: true})
	f.step(ctx, err)
	c := f.runContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
	f.awaitAll(ctx)
	f.step(ctx, l.Trigger(ctx, c))
	f.step(ctx, l.StopPod(ctx, pod))
	f.step(ctx, l.RemovePod(ctx, pod))
}

// If 50 pods change at the same time, each step is reported once, in order, and
// the cache of each pod is correct at each of its events.
func TestFiftyPodsChangeAtOnce(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	f.runPipeline(runOptions{checkCache: true})
	prog := f.runProgram(ctx)
	f.runPods(ctx, 50)
	for attempt := range uint32(2) {
		f.runContainers(ctx, func(i int) lab.ContainerSpec {
			spec := lab.ContainerSpec{Name: "main", Attempt: attempt, Program: lab.Panic()}
			if i%2 == 0 {
				spec.Program = lab.Exit(uint8(i % 5))
			}
			return spec
		})
		f.triggerAll(ctx)
	}
	f.stopPods(ctx)
	f.removePods(ctx)
	checkSummary(t, prog.interrupt(t))
}

// If a container lives for less than the relist period, polling may miss its
// start but reports its end.
func TestPollingReportsEndOfShortContainers(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	in := f.runPipeline(runOptions{Options: pipeline.Options{RelistPeriod: time.Second}})
	f.runPods(ctx, 10)
	must(t, f.concurrently(ctx, func(ctx context.Context, _ int, pod *lab.Pod) error {
		c, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "job", Program: lab.ExitAfter(7, 20*time.Millisecond)})
		if err != nil {
			return err
		}
		return errors.Join(l.AwaitDied(ctx, c), eventually(ctx, func() bool {
			return slices.ContainsFunc(in.events(podUID(pod)), func(ev pleg.Event) bool {
				died := ev.Type == pleg.ContainerDied && string(ev.ContainerID) == c.ID
				return died && ev.ExitCode != nil && *ev.ExitCode == 7 && ev.Reason == "Error"
			})
		}))
	}))
}

// If a pod with a running container is removed between two lists, its containers
// die before they are removed.
func TestRemovalBetweenTwoLists(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	in := f.runPipeline(runOptions{Options: pipeline.Options{RelistPeriod: 5 * time.Second}})
	pod, err := f.lab.RunPod(ctx, lab.PodSpec{Name: "sudden", HostNetwork: true})
	must(t, err)
	f.runContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	f.awaitAll(ctx)
	must(t, f.lab.RemovePod(ctx, pod))

	want := []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved}
	must(t, eventually(ctx, func() bool { return len(in.events(podUID(pod))) >= 2*len(want) }))
	byID := make(map[pleg.ContainerID][]pleg.EventType)
	for _, ev := range in.events(podUID(pod)) {
		byID[ev.ContainerID] = append(byID[ev.ContainerID], ev.Type)
	}
	for id, got := range byID {
		if !slices.Equal(got, want) {
			t.Errorf("%.12s: got %v, want %v", id, got, want)
		}
	}
}
