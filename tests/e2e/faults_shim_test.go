//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// shimFaults are those of what containerd leans on.
var shimFaults = []fault{
	{name: "a shim stopped", pods: 4, run: stoppedShim},
	{name: "a shim killed", short: true, pods: 4, run: killedShim},
	{name: "a network plugin hangs in teardown", pods: 4, run: hungTeardown},
	{name: "the disk of containerd full", pods: 4, lab: lab.Options{DiskSize: 32 << 20}, run: fullDisk},
}

func podUID(p *lab.Pod) pleg.PodUID { return pleg.PodUID(p.UID) }

// stoppedShim: what the runtime answers of one pod is stale, and nobody can know
// better; of the others all goes on.
func stoppedShim(ctx context.Context, tr *trial) {
	t, l := tr.t, tr.lab
	sick, well := tr.scene.pods[0], tr.scene.pods[1]
	tr.inject(ctx)
	must(t, l.FreezeShim(ctx, sick))
	must(t, l.KillProcess(ctx, mainOf(sick)))
	must(t, l.Trigger(ctx, mainOf(well)))
	took, err := tr.settled(ctx, time.Now())
	must(t, err)
	t.Logf("an end in another pod was known after %v meanwhile", took)
	must(t, sleepUntil(ctx, tr.injected.Add(10*time.Second)))
	tr.keeps(ctx, ledgerState(l)) // as stale as the runtime
	must(t, l.ThawShim(sick))
	tr.lift()
	must(t, l.AwaitDied(ctx, mainOf(sick)))
	tr.end(ctx, false)
	tr.afterwards(ctx)
}

func killedShim(ctx context.Context, tr *trial) {
	t, l := tr.t, tr.lab
	tr.inject(ctx)
	must(t, l.KillShim(ctx, tr.scene.pods[1]))
	tr.lift()
	tr.end(ctx, false)
	tr.afterwards(ctx)
}

// hungTeardown: a pod cannot be stopped, since its address is not taken back. Its
// end is told before that is over.
func hungTeardown(ctx context.Context, tr *trial) {
	t, l := tr.t, tr.lab
	sick := tr.scene.pods[0] // with an address of its own
	must(t, l.HangTeardown(ctx))
	tr.inject(ctx)
	var stop errgroup.Group
	stop.Go(func() error { return l.StopPod(ctx, sick) })
	must(t, l.AwaitHang(ctx))
	began := time.Now()
	for _, o := range tr.observers {
		must(t, eventually(ctx, func() bool { return o.died(sick.SandboxID) && o.died(mainOf(sick).ID) }))
		t.Logf("%s: told of the end of the pod %v after its teardown began to hang", o.seen.observer, time.Since(began).Round(time.Millisecond))
	}
	well := tr.scene.pods[3]
	must(t, l.Trigger(ctx, mainOf(well)))
	must(t, eventually(ctx, func() bool { return tr.observers[0].died(mainOf(well).ID) && tr.observers[1].died(mainOf(well).ID) }))
	must(t, sleepUntil(ctx, tr.injected.Add(10*time.Second)))
	must(t, l.EndTeardown())
	tr.lift()
	must(t, stop.Wait())
	tr.end(ctx, false)
	tr.afterwards(ctx)
}

func (o *observer) died(id string) bool {
	o.seen.mu.Lock()
	defer o.seen.mu.Unlock()
	for _, events := range o.seen.byPod {
		for _, ev := range events {
			if ev.Type == pleg.ContainerDied && string(ev.ContainerID) == id {
				return true
			}
		}
	}
	return false
}

// fullDisk: containerd can neither make a pod nor write down that a container has
// ended. What it says meanwhile is what counts, and in the end it knows all.
func fullDisk(ctx context.Context, tr *trial) {
	t, l := tr.t, tr.lab
	tr.inject(ctx)
	must(t, l.FillDisk())
	killed, exits := mainOf(tr.scene.pods[0]), mainOf(tr.scene.pods[1])
	must(t, l.KillProcess(ctx, killed))
	must(t, l.TriggerProcess(exits))
	if _, err := l.RunPod(ctx, lab.PodSpec{Name: "no room", HostNetwork: true}); err == nil {
		t.Error("a pod was made although the disk is full")
	} else {
		t.Logf("a new pod: %.200v", err)
	}
	must(t, sleepUntil(ctx, tr.injected.Add(10*time.Second)))
	for _, o := range tr.observers {
		if err := tr.matchesLists(ctx, o); err != nil {
			t.Errorf("while the disk is full: %v", err)
		}
	}
	t.Logf("while the disk is full the runtime says of the killed container %s, of the ended one %s", word(ctx, l, killed), word(ctx, l, exits))
	must(t, l.FreeDisk())
	tr.lift()
	must(t, l.AwaitDied(ctx, killed))
	must(t, l.AwaitDied(ctx, exits))
	tr.end(ctx, false)
	tr.afterwards(ctx)
}

func word(ctx context.Context, l *lab.Lab, c *lab.Container) string {
	answer, err := l.Runtime().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(strings.ToLower(strings.TrimPrefix(answer.GetStatus().GetState().String(), "CONTAINER_")))
}
