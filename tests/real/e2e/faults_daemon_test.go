//go:build linux

package e2e_test

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// daemonFaults break containerd itself.
var daemonFaults = []fault{
	{name: "containerd stopped for 150 s", pods: 5, run: freeze(150 * time.Second)},
	{name: "containerd stopped for 30 s", short: true, pods: 5, run: freeze(30 * time.Second)},
	{name: "containerd stopped for 1 s", short: true, pods: 5, run: freeze(time.Second)},
	{name: "containerd killed and back with a new socket", short: true, pods: 6, run: restart((*lab.Lab).Crash, time.Second)},
	{name: "containerd ended in order and back", pods: 6, run: restart((*lab.Lab).Terminate, time.Second)},
	{name: "containerd gone for 20 s", pods: 6, run: restart((*lab.Lab).Crash, 20*time.Second)},
	{name: "containerd killed with 100 pods", pods: 100, run: restart((*lab.Lab).Crash, 0)},
}

// freeze stops containerd for a while. Meanwhile containers end, and a client
// asks for a new pod.
func freeze(lasts time.Duration) func(context.Context, *fixture) {
	return func(ctx context.Context, f *fixture) {
		t, l := f.t, f.lab
		before := truthOf(l)
		must(t, l.Freeze(ctx))
		victim, exits := oldest(f.pods[0]), oldest(f.pods[1])
		must(t, l.KillProcess(ctx, victim))
		must(t, l.TriggerProcess(exits))
		var request errgroup.Group
		request.Go(func() error {
			_, err := l.RunPod(ctx, lab.PodSpec{Name: "asked"})
			return err
		})
		f.sleepIntoFault(ctx, lasts)
		f.checkStates(ctx, before)
		must(t, l.Thaw())
		must(t, l.AwaitDied(ctx, victim))
		must(t, l.AwaitDied(ctx, exits))
		must(t, request.Wait())
		f.checkAfterFault(ctx)
	}
}

// restart ends containerd and starts it again after a while. Meanwhile a third
// of the containers end.
func restart(end func(*lab.Lab), down time.Duration) func(context.Context, *fixture) {
	return func(ctx context.Context, f *fixture) {
		t, l := f.t, f.lab
		before := truthOf(l)
		oldSocket := inode(t, l)
		end(l)
		var dead []*lab.Container
		for i, p := range f.pods {
			if i%3 == 0 {
				must(t, l.KillProcess(ctx, oldest(p)))
				dead = append(dead, oldest(p))
			}
		}
		// The old socket keeps its inode, so that the new one gets another. A
		// containerd that is terminated removes the socket.
		kept := os.Rename(socket(l), socket(l)+".old") == nil
		f.sleepIntoFault(ctx, down)
		f.checkStates(ctx, before)
		must(t, l.Revive(ctx))
		if kept && inode(t, l) == oldSocket {
			t.Error("the socket is the old one")
		}
		for _, c := range dead {
			must(t, l.AwaitDied(ctx, c))
		}
		f.checkAfterFault(ctx)
		for _, in := range f.instances {
			status, err := in.Client.PodStatus(ctx, podUID(f.pods[1]), f.faultBegan)
			must(t, err)
			if c := status.Container(pleg.ContainerID(oldest(f.pods[1]).ID)); c == nil || c.State != pleg.StateRunning {
				t.Errorf("%s: a container that survived: got %+v", in.name, status.Containers)
			}
		}
	}
}

func socket(l *lab.Lab) string { return strings.TrimPrefix(l.Endpoint(), "unix://") }

func inode(t *testing.T, l *lab.Lab) uint64 {
	t.Helper()
	var st syscall.Stat_t
	must(t, syscall.Stat(socket(l), &st))
	return st.Ino
}
