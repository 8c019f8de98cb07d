//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// containerd 1.6 sends no events: the program polls. Only this runtime lists a pod whose network
// setup failed: network events report that a pod got its address, or that it will get none.
func TestContainerd16(t *testing.T) {
	t.Setenv(lab.RuntimeEnv, string(lab.Containerd16))
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	in := f.run(ctx, instanceOptions{name: "off", settings: polling})
	f.run(ctx, instanceOptions{name: "auto", settings: polling.With(daemon.Settings{"events": "auto"})})
	network := make(chan pleg.Event, 10)
	only := []pleg.EventType{pleg.NetworkSetupCompleted, pleg.NetworkFailed}
	f.watch(ctx, in, pleg.SubscribeOptions{Filter: pleg.Filter{NetworkEvents: true, Types: only}, Bookmarks: true}, func(ev pleg.Event) {
		if ev.Type != pleg.Bookmark {
			network <- ev
		}
	})
	must(t, expectNext(ctx, network, pleg.Synced, "")) // from now on
	host, err := l.RunPod(ctx, lab.PodSpec{Name: "host", HostNetwork: true})
	f.step(ctx, err)
	good, err := l.RunPod(ctx, lab.PodSpec{Name: "good"})
	must(t, err)
	must(t, expectNext(ctx, network, pleg.NetworkSetupCompleted, good.UID))
	f.pods = []*lab.Pod{host, good}
	f.runContainers(ctx, mainExits)
	f.triggerAll(ctx)
	f.stopPods(ctx)
	f.removePods(ctx)

	must(t, l.BreakNetwork(ctx))
	bad := lab.PodSpec{Name: "bad", UID: "c0ffee00-0000-4000-8000-000000000000"}
	if _, err := l.RunPod(ctx, bad); err == nil {
		t.Fatal("containerd made a pod although the network plugin fails")
	}
	f.step(ctx, expectNext(ctx, network, pleg.NetworkFailed, bad.UID))
	must(t, l.RepairNetwork(ctx))
}

// expectNext returns an error unless the next event is the given one.
func expectNext(ctx context.Context, events <-chan pleg.Event, want pleg.EventType, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	select {
	case ev := <-events:
		if ev.Type != want || string(ev.PodUID) != uid {
			return fmt.Errorf("got %s of pod %s, want %s of %s", describe(ev), ev.PodUID, want, uid)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("want %s of pod %s: %w", want, uid, context.Cause(ctx))
	}
}
