//go:build linux

package e2e_test

import (
	"context"
	"testing"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// The life of a pod, step by step, as the library and the program tell it.
func TestLifeOfAPod(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	_, seen := runLibrary(ctx, t, l, pipeline.Options{}, true)
	prog := startProgram(ctx, t, l)
	s := newScene(l, seen, prog.seen)
	must(t, s.runPods(ctx, 1))
	pod := s.pods[0]

	trigger := l.Trigger
	for _, life := range []struct {
		name string
		spec lab.ContainerSpec
		end  func(context.Context, *lab.Container) error
	}{
		{"exit 0", lab.ContainerSpec{Program: lab.Exit(0)}, trigger},
		{"exit 7", lab.ContainerSpec{Program: lab.Exit(7)}, trigger},
		{"panic", lab.ContainerSpec{Program: lab.Panic()}, trigger},
		{"out of memory", lab.ContainerSpec{Program: lab.EatMemory(), MemoryLimit: 32 << 20}, trigger},
		{"killed", lab.ContainerSpec{Program: lab.Pause()}, l.Kill},
		{"stopped", lab.ContainerSpec{Program: lab.Pause()}, l.StopContainer},
	} {
		t.Run(life.name, func(t *testing.T) {
			// A restart: the same name, the next attempt.
			life.spec.Name, life.spec.Attempt = "main", uint32(len(pod.Containers()))
			c, err := l.CreateContainer(ctx, pod, life.spec)
			must(t, err)
			must(t, s.awaitAll(ctx))
			must(t, l.StartContainer(ctx, c))
			must(t, s.awaitAll(ctx))
			must(t, life.end(ctx, c))
			must(t, s.awaitAll(ctx))
		})
	}
	must(t, l.RemoveContainer(ctx, pod.Containers()[0]))
	must(t, s.awaitAll(ctx))

	side, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "side", Program: lab.Pause()})
	must(t, err)
	must(t, s.awaitAll(ctx))
	must(t, l.KillSandbox(ctx, pod)) // its container runs on
	must(t, s.awaitAll(ctx))
	must(t, l.StopContainer(ctx, side))
	must(t, s.awaitAll(ctx))
	again := lab.PodSpec{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, Attempt: 1}
	second, err := l.RunPod(ctx, again) // the same pod, its next sandbox
	must(t, err)
	must(t, s.awaitAll(ctx))
	_, err = l.RunContainer(ctx, second, lab.ContainerSpec{Name: "main", Attempt: 6, Program: lab.Pause()})
	must(t, err)
	must(t, s.awaitAll(ctx))
	must(t, l.RemovePod(ctx, pod))
	must(t, s.awaitAll(ctx))
	must(t, l.StopPod(ctx, second)) // with a container that runs
	must(t, s.awaitAll(ctx))
	must(t, l.RemovePod(ctx, second))
	must(t, s.awaitAll(ctx))

	checkSummary(t, prog.interrupt(t))
}

// A sandbox without the kubelet's labels is a pod like any other.
func TestPodsOfOtherClients(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	_, seen := runLibrary(ctx, t, l, pipeline.Options{}, true)
	s := newScene(l, seen)
	pod, err := l.RunPod(ctx, lab.PodSpec{Name: "foreign", Foreign: true, HostNetwork: true})
	must(t, err)
	s.pods = append(s.pods, pod)
	must(t, s.awaitAll(ctx))
	c, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
	must(t, err)
	must(t, s.awaitAll(ctx))
	must(t, l.Trigger(ctx, c))
	must(t, s.awaitAll(ctx))
	must(t, l.StopPod(ctx, pod))
	must(t, s.awaitAll(ctx))
	must(t, l.RemovePod(ctx, pod))
	must(t, s.awaitAll(ctx))
}

// The library needs lists and statuses only, so an old runtime will do.
func TestDebianContainerd(t *testing.T) {
	ctx, l := startLab(t, lab.Debian)
	_, seen := runLibrary(ctx, t, l, pipeline.Options{}, true)
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 2))
	must(t, s.each(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
		_, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Exit(uint8(i))})
		return err
	}))
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.Trigger(ctx, p.Containers()[0]) }))
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.StopPod(ctx, p) }))
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.RemovePod(ctx, p) }))
}
