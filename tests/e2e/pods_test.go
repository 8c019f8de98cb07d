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
	f.runPipeline(ctx, runOptions{checkCache: true})
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
		must(t, err)
		f.awaitAll(ctx)
		must(t, l.StartContainer(ctx, c))
		f.awaitAll(ctx)
		must(t, life.end(ctx, c))
		f.awaitAll(ctx)
	}
	must(t, l.RemoveContainer(ctx, oldest(pod)))
	f.awaitAll(ctx)
}

// livesOfSandboxes kills the sandbox of a pod under a running container, and
// gives the pod its next sandbox.
func livesOfSandboxes(ctx context.Context, f *fixture) {
	t, l, pod := f.t, f.lab, f.pods[0]
	t.Helper()
	step := func(err error) {
		t.Helper()
		must(t, err)
		f.awaitAll(ctx)
	}
	side, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "side", Program: lab.Pause()})
	step(err)
	step(l.KillSandbox(ctx, pod))
	step(l.StopContainer(ctx, side))
	second, err := l.RunPod(ctx, lab.PodSpec{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, Attempt: 1})
	step(err)
	_, err = l.RunContainer(ctx, second, lab.ContainerSpec{Name: "main", Attempt: 6, Program: lab.Pause()})
	step(err)
	step(l.RemovePod(ctx, pod))
	step(l.StopPod(ctx, second)) // its container still runs
	step(l.RemovePod(ctx, second))
}

// A sandbox without the kubelet's labels is a pod like any other.
func TestPodsWithoutKubeletLabels(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	f.runPipeline(ctx, runOptions{checkCache: true})
	step := func(err error) {
		t.Helper()
		must(t, err)
		f.awaitAll(ctx)
	}
	pod, err := l.RunPod(ctx, lab.PodSpec{Name: "foreign", Foreign: true, HostNetwork: true})
	step(err)
	c, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
	step(err)
	step(l.Trigger(ctx, c))
	step(l.StopPod(ctx, pod))
	step(l.RemovePod(ctx, pod))
}

// The library needs only lists and statuses, which containerd 1.6 has.
func TestDebianContainerd(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{Debian: true})
	f.runPipeline(ctx, runOptions{checkCache: true})
	f.runPods(ctx, 2)
	f.runContainers(ctx, mainExits)
	f.triggerAll(ctx)
	f.stopPods(ctx)
	f.removePods(ctx)
}

// If 50 pods change at the same time, each step is reported once, in order, and
// the cache of each pod is correct at each of its events.
func TestFiftyPodsChangeAtOnce(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	f.runPipeline(ctx, runOptions{checkCache: true})
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
	in := f.runPipeline(ctx, runOptions{Options: pipeline.Options{RelistPeriod: time.Second}})
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
	in := f.runPipeline(ctx, runOptions{Options: pipeline.Options{RelistPeriod: 5 * time.Second}})
	pod, err := f.lab.RunPod(ctx, lab.PodSpec{Name: "sudden", HostNetwork: true})
	must(t, err)
	_, err = f.lab.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	must(t, err)
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
