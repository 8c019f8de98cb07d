//go:build linux

package e2e_test

import (
	"context"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// Each step in the life of a pod is reported, also of one without the kubelet's labels.
func TestLifeOfPod(t *testing.T) {
	t.Parallel()
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
	f.step(ctx, l.StopPod(ctx, second)) // the container of the sandbox still runs
	f.step(ctx, l.RemovePod(ctx, second))
}
