//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
)

// After a restart of containerd, instances that poll and that follow the CRI events report
// what happened meanwhile, and nothing else.
func TestRestartOfContainerd(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	f.run(ctx, instanceOptions{name: "polling", settings: polling})
	f.run(ctx, instanceOptions{name: "events", settings: rareLists.With(polling)})
	f.runPods(ctx, 5)
	f.runContainers(ctx, mainExits)
	f.triggerAll(ctx)
	f.runContainers(ctx, func(int) lab.ContainerSpec {
		return lab.ContainerSpec{Name: "main", Attempt: 1, Program: lab.Pause()}
	})

	before := time.Now()
	f.restartWithDeath(ctx, newest(f.pods[0]))
	f.awaitAll(ctx)
	for _, in := range f.instances {
		status, err := in.Client.PodStatus(ctx, podUID(f.pods[1]), before)
		must(t, err)
		if c := status.Container(pleg.ContainerID(newest(f.pods[1]).ID)); c == nil || c.State != pleg.StateRunning {
			t.Errorf("%s: a pod that survived the restart: got %+v", in.name, status.Containers)
		}
		must(t, in.awaitHealth(ctx, true))
	}
	f.stopPods(ctx)
	f.removePods(ctx)
}

// If containerd freezes, an instance becomes unhealthy in time, also if it lists rarely,
// because events stand in for lists. Once containerd continues, the instance is healthy,
// follows the events, and reports what happened meanwhile.
func TestFrozenContainerd(t *testing.T) {
	const pollingThreshold, eventsThreshold, detected = time.Second, 2 * time.Second, 2 * time.Second
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	f.run(ctx, instanceOptions{name: "polling", settings: polling.With(load.Settings{
		"list-timeout": "300ms", "inspect-timeout": "1s", "relist-threshold": pollingThreshold.String(),
	})})
	limits := []time.Duration{pollingThreshold}
	following := func() bool { return true }
	if l.Traits().Events {
		in := f.run(ctx, instanceOptions{name: "events", settings: rareLists.With(polling).With(load.Settings{
			"relist-threshold": eventsThreshold.String(), "event-probe-period": "1s", "event-probe-timeout": "500ms",
		})})
		limits = append(limits, eventsThreshold+detected)
		following = func() bool { return in.metric(ctx, t, "pleg_event_stream_up") == 1 }
	}
	f.runPods(ctx, 3)
	killed := f.runContainer(ctx, f.pods[0], lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	exits := f.runContainer(ctx, f.pods[1], lab.ContainerSpec{Name: "main", Program: lab.Exit(3)})
	f.awaitAll(ctx)
	must(t, eventually(ctx, following))

	frozen := time.Now()
	must(t, l.Freeze(ctx))
	must(t, l.KillProcess(ctx, killed))
	for i, in := range f.instances {
		must(t, in.awaitHealth(ctx, false))
		took := time.Since(frozen)
		t.Logf("%s: unhealthy after %v", in.name, took.Round(10*time.Millisecond))
		// The last list before the freeze counts, which is old on a busy machine.
		if took > limits[i]+late || in.name == "events" && took < eventsThreshold/2 {
			t.Errorf("%s: unhealthy %v after the freeze, want about %v", in.name, took, limits[i])
		}
		if known, err := in.cached(ctx); err != nil || len(known) != len(f.pods) {
			t.Errorf("%s: while the runtime was frozen, the cache has %d pods, want %d: %v", in.name, len(known), len(f.pods), err)
		}
	}
	if l.Traits().Events && following() {
		t.Error("the event stream of a frozen containerd is up")
	}
	must(t, l.Thaw())
	for _, in := range f.instances {
		must(t, in.awaitHealth(ctx, true))
	}
	must(t, eventually(ctx, following))
	f.step(ctx, l.AwaitDied(ctx, killed))
	f.step(ctx, l.Trigger(ctx, exits))
}

// containerd 1.6 has no events: the program polls, unless events are required. It lists a
// pod whose network setup failed, as no other runtime does: then network events report that
// a pod has its address, or that it will not get one.
func TestContainerd16(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{Runtime: lab.Containerd16})
	l := f.lab
	in := f.run(ctx, instanceOptions{name: "off", settings: polling})
	f.run(ctx, instanceOptions{name: "auto", settings: polling.With(load.Settings{"events": "auto"})})
	network := make(chan pleg.Event, 10)
	only := []pleg.EventType{pleg.NetworkSetupCompleted, pleg.NetworkFailed}
	f.watch(ctx, in, client.WatchOptions{Filter: pleg.Filter{NetworkEvents: true, Types: only}, Bookmarks: true}, func(ev pleg.Event) {
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

	path, err := buildProgram()
	must(t, err)
	_, err = load.StartDaemon(ctx, load.DaemonOptions{
		Program: path, Dir: t.TempDir(), Name: "strict", Args: []string{"--runtime-endpoint", l.Endpoint(), "--events", "require"},
	})
	if err == nil || !strings.Contains(err.Error(), pleg.ErrNoEvents.Error()) {
		t.Errorf("run with required events: got %v, want %v", err, pleg.ErrNoEvents)
	}
}

// expectNext returns an error unless the next event is this one.
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
