//go:build linux

package e2e_test

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// shimFaults break what containerd depends on.
var shimFaults = []fault{
	{name: "a shim stopped", pods: 4, run: stoppedShim},
	{name: "a shim killed", short: true, pods: 4, run: killedShim},
	{name: "a network plugin hangs in teardown", pods: 4, run: hungTeardown},
	{name: "the disk of containerd full", pods: 4, lab: lab.Options{DiskSize: 32 << 20}, run: fullDisk},
}

// stoppedShim: the runtime reports stale statuses of one pod, and so do the
// instances. Other pods are reported as before.
func stoppedShim(ctx context.Context, f *fixture) {
	t, l := f.t, f.lab
	stopped, other := f.pods[0], f.pods[1]
	f.beginFault(ctx)
	must(t, l.FreezeShim(ctx, stopped))
	must(t, l.KillProcess(ctx, oldest(stopped)))
	must(t, l.Trigger(ctx, oldest(other)))
	took, err := f.awaitAllSince(ctx, time.Now())
	must(t, err)
	t.Logf("during the fault, an end in another pod was reported after %v", took)
	f.sleepIntoFault(ctx, 10*time.Second)
	f.checkStates(ctx, historyState(l)) // as stale as the runtime
	must(t, l.ThawShim(stopped))
	f.endFault()
	must(t, l.AwaitDied(ctx, oldest(stopped)))
	f.checkAfterFault(ctx, false)
	f.changePods(ctx)
}

func killedShim(ctx context.Context, f *fixture) {
	f.beginFault(ctx)
	must(f.t, f.lab.KillShim(ctx, f.pods[1]))
	f.endFault()
	f.checkAfterFault(ctx, false)
	f.changePods(ctx)
}

// hungTeardown: the stop of a pod hangs, because the plugin does not release its
// address. Its end is reported before the stop returns.
func hungTeardown(ctx context.Context, f *fixture) {
	t, l := f.t, f.lab
	hung := f.pods[0] // it has its own address
	must(t, l.HangTeardown(ctx))
	f.beginFault(ctx)
	var stop errgroup.Group
	stop.Go(func() error { return l.StopPod(ctx, hung) })
	must(t, l.AwaitHang(ctx))
	began := time.Now()
	for _, in := range f.instances {
		must(t, eventually(ctx, func() bool { return in.reportedEnd(hung.SandboxID) && in.reportedEnd(oldest(hung).ID) }))
		t.Logf("%s: reported the end of the pod %v after its teardown began to hang", in.name, time.Since(began).Round(time.Millisecond))
	}
	other := oldest(f.pods[3]).ID
	must(t, l.Trigger(ctx, oldest(f.pods[3])))
	must(t, eventually(ctx, func() bool { return f.instances[0].reportedEnd(other) && f.instances[1].reportedEnd(other) }))
	f.sleepIntoFault(ctx, 10*time.Second)
	must(t, l.EndTeardown())
	f.endFault()
	must(t, stop.Wait())
	f.checkAfterFault(ctx, false)
	f.changePods(ctx)
}

// fullDisk: containerd can neither make a pod nor store that a container ended.
// During the fault the instances must agree with containerd.
func fullDisk(ctx context.Context, f *fixture) {
	t, l := f.t, f.lab
	f.beginFault(ctx)
	must(t, l.FillDisk())
	killed, exits := oldest(f.pods[0]), oldest(f.pods[1])
	must(t, l.KillProcess(ctx, killed))
	must(t, l.TriggerProcess(exits))
	if _, err := l.RunPod(ctx, lab.PodSpec{Name: "no room", HostNetwork: true}); err == nil {
		t.Error("containerd made a pod although the disk is full")
	} else {
		t.Logf("a new pod: %.200v", err)
	}
	f.sleepIntoFault(ctx, 10*time.Second)
	for _, in := range f.instances {
		state, err := in.state(ctx)
		if err == nil {
			err = diffLists(ctx, l, in.name, state)
		}
		if err != nil {
			t.Errorf("while the disk is full: %v", err)
		}
	}
	t.Logf("while the disk is full, containerd reports %s for the killed container and %s for the ended one",
		reportedState(ctx, l, killed), reportedState(ctx, l, exits))
	must(t, l.FreeDisk())
	f.endFault()
	must(t, l.AwaitDied(ctx, killed))
	must(t, l.AwaitDied(ctx, exits))
	f.checkAfterFault(ctx, false)
	f.changePods(ctx)
}

func reportedState(ctx context.Context, l *lab.Lab, c *lab.Container) string {
	answer, err := l.Runtime().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	if err != nil {
		return err.Error()
	}
	return strings.ToLower(strings.TrimPrefix(answer.GetStatus().GetState().String(), "CONTAINER_"))
}
