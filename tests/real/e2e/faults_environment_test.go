//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// shimFaults break parts on which containerd depends: shims, the network plugin, the disk.
var shimFaults = []fault{
	{name: "a shim stopped", shims: true, pods: 4, run: stoppedShim},
	{name: "a shim killed", shims: true, short: true, pods: 4, run: killedShim},
	{name: "a network plugin hangs in teardown", shims: true, pods: 4, run: hungTeardown},
	{name: "the disk of containerd full", instances: longTimeouts, pods: 4, lab: lab.Options{DiskSize: 32 << 20}, run: fullDisk},
}

// stoppedShim: the runtime reports stale statuses of one pod, and so do the
// instances. Other pods are reported as before.
func stoppedShim(ctx context.Context, f *fixture) {
	t, l := f.t, f.lab
	stopped, other := f.pods[0], f.pods[1]
	must(t, l.FreezeShim(ctx, stopped))
	must(t, l.KillProcess(ctx, oldest(stopped)))
	must(t, l.Trigger(ctx, oldest(other)))
	f.awaitAll(ctx)
	f.sleepIntoFault(ctx, 10*time.Second)
	f.checkStates(ctx, truthOf(l)) // as stale as the runtime
	must(t, l.ThawShim(stopped))
	must(t, l.AwaitDied(ctx, oldest(stopped)))
}

func killedShim(ctx context.Context, f *fixture) {
	must(f.t, f.lab.KillShim(ctx, f.pods[1]))
}

// hungTeardown: the stop of a pod hangs, because the plugin does not release its
// address. Its end is reported before the stop returns.
func hungTeardown(ctx context.Context, f *fixture) {
	t, l := f.t, f.lab
	hung := f.pods[0] // with its own address
	must(t, l.HangTeardown(ctx))
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
	must(t, stop.Wait())
}

// fullDisk: containerd can neither make a pod nor store that a container ended.
// During the fault the instances must agree with containerd.
func fullDisk(ctx context.Context, f *fixture) {
	t, l := f.t, f.lab
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
		if err := in.diffLists(ctx, l); err != nil {
			t.Errorf("while the disk is full: %v", err)
		}
	}
	states, err := listed(ctx, l)
	must(t, err)
	t.Logf("while the disk is full, containerd reports %v for the killed container and %v for the ended one",
		states[pleg.ContainerID(killed.ID)], states[pleg.ContainerID(exits.ID)])
	must(t, l.FreeDisk())
	if l.Traits().ForgetsEnds {
		l.Terminate()
		must(t, l.Revive(ctx))
	}
	must(t, l.AwaitDied(ctx, killed))
	must(t, l.AwaitDied(ctx, exits))
}

// loadFaults break nothing: they overload the runtime.
var loadFaults = []fault{
	{name: "a sandbox list too large to send", instances: longTimeouts, run: largeList},
	{name: "200 pods at once", instances: longTimeouts, run: manyPods},
}

// largeList makes pods with so many annotations that containerd cannot send the
// list of them.
func largeList(ctx context.Context, f *fixture) {
	const pods = 80
	t, l := f.t, f.lab
	large := map[string]string{"large": strings.Repeat("x", 250<<10)}
	specs := make([]lab.PodSpec, pods)
	for i := range specs {
		specs[i] = lab.PodSpec{Name: fmt.Sprint("large-", i), HostNetwork: true, Annotations: large}
	}
	var err error
	f.pods, err = l.RunPods(ctx, specs)
	must(t, err)
	f.runContainers(ctx, mainExits)
	if _, err := l.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("the list of sandboxes: got %v, want that it cannot be sent", err)
	}
	someOf := func(n, rest int, step func(context.Context, *lab.Pod) error) {
		t.Helper()
		f.forEachPod(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
			if i%n != rest {
				return nil
			}
			return step(ctx, p)
		})
	}
	someOf(2, 1, func(ctx context.Context, p *lab.Pod) error { return l.Trigger(ctx, oldest(p)) })
	someOf(4, 0, l.StopPod)
	kept := f.pods[1]
	f.pods = slices.Delete(f.pods, 1, 2)
	f.stopPods(ctx)
	f.removePods(ctx)
	f.pods = []*lab.Pod{kept}
}

// manyPods starts, ends, stops and removes as many pods at once as the runtime
// can, and awaits each step.
func manyPods(ctx context.Context, f *fixture) {
	const pods = 200
	t, l := f.t, f.lab
	step := func(what string, do func(context.Context, int, *lab.Pod) error) {
		t.Helper()
		began := time.Now()
		must(t, f.concurrently(ctx, do))
		done := time.Now()
		f.awaitAll(ctx)
		t.Logf("%s took the runtime %v; all was known %v later", what, done.Sub(began).Round(time.Millisecond), time.Since(done).Round(time.Millisecond))
	}
	specs := make([]lab.PodSpec, pods)
	for i := range specs {
		specs[i] = lab.PodSpec{Name: fmt.Sprint("many-", i), HostNetwork: i%4 != 0}
	}
	var err error
	f.pods, err = l.RunPods(ctx, specs)
	must(t, err)
	step("200 starts", func(ctx context.Context, i int, p *lab.Pod) error {
		_, err := l.RunContainer(ctx, p, mainExits(i))
		return err
	})
	// All processes end at the same moment; containerd reports them one after the other.
	for _, p := range f.pods {
		must(t, l.TriggerProcess(oldest(p)))
	}
	step("200 ends at one moment", func(ctx context.Context, _ int, p *lab.Pod) error { return l.AwaitDied(ctx, oldest(p)) })
	step("200 sandboxes stopped", func(ctx context.Context, _ int, p *lab.Pod) error { return l.StopPod(ctx, p) })
	kept := f.pods[0]
	f.pods = f.pods[1:]
	step("200 pods removed", func(ctx context.Context, _ int, p *lab.Pod) error { return l.RemovePod(ctx, p) })
	f.pods = []*lab.Pod{kept}
}
