//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// After a restart of containerd the pipeline and the program report what happened
// meanwhile, and nothing else.
func TestRestartOfContainerd(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	in, program := f.runPipeline(runOptions{checkCache: true}), f.runProgram(ctx)
	f.runPods(ctx, 5)
	f.runContainers(ctx, func(int) lab.ContainerSpec { return lab.ContainerSpec{Name: "main", Program: lab.Pause()} })

	before := time.Now()
	f.restartWithDeath(ctx, oldest(f.pods[0]))
	f.awaitAll(ctx)
	status, err := in.pipeline.Cache().GetNewerThan(ctx, podUID(f.pods[1]), before)
	must(t, err)
	if len(status.Containers) != 1 || status.Containers[0].State != pleg.StateRunning {
		t.Errorf("a pod that survived the restart: got %+v", status.Containers)
	}
	if ok, err := in.pipeline.Healthy(); !ok {
		t.Errorf("unhealthy: %v", err)
	}
	f.stopPods(ctx)
	program.interrupt(t)
}

// If containerd freezes, the pipeline becomes unhealthy. Once it goes on, the
// pipeline is healthy and reports what happened meanwhile.
func TestFrozenContainerd(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	in := f.runPipeline(runOptions{checkCache: true, Options: pipeline.Options{
		ListTimeout: 300 * time.Millisecond, InspectTimeout: time.Second, RelistThreshold: time.Second,
	}})
	f.runPods(ctx, 3)
	c := f.runContainer(ctx, f.pods[0], lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	f.awaitAll(ctx)

	must(t, l.Freeze(ctx))
	must(t, l.KillProcess(ctx, c))
	must(t, awaitHealth(ctx, in, false))
	if _, err := in.pipeline.Cache().Get(podUID(c.Pod)); err != nil {
		t.Errorf("the cache lost a pod while the runtime was frozen: %v", err)
	}
	must(t, l.Thaw())
	must(t, awaitHealth(ctx, in, true))
	f.step(ctx, l.AwaitDied(ctx, c))
}

func awaitHealth(ctx context.Context, in *instance, want bool) error {
	return eventually(ctx, func() bool {
		ok, _ := in.pipeline.Healthy()
		return ok == want
	})
}

func TestGetNewerThanReturnsTheStepBefore(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	cache := f.runPipeline(runOptions{}).pipeline.Cache()
	pod, err := l.RunPod(ctx, lab.PodSpec{Name: "fresh"})
	must(t, err)
	c := f.runContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})

	status, err := cache.GetNewerThan(ctx, podUID(pod), time.Now())
	must(t, err)
	if got := status.Container(pleg.ContainerID(c.ID)); got == nil || got.State != pleg.StateRunning {
		t.Fatalf("after the start: got %+v, want running", got)
	}
	if len(status.IPs) != 1 {
		t.Errorf("IPs: got %v, want one address of the lab's bridge", status.IPs)
	}
	must(t, l.Trigger(ctx, c))
	status, err = cache.GetNewerThan(ctx, podUID(pod), time.Now())
	must(t, err)
	if got := status.Container(pleg.ContainerID(c.ID)); got == nil || got.State != pleg.StateExited || got.ExitCode != 7 {
		t.Fatalf("after the end: got %+v, want exit code 7", got)
	}
	must(t, l.RemovePod(ctx, pod))
	status, err = cache.GetNewerThan(ctx, podUID(pod), time.Now())
	must(t, err)
	if len(status.Containers)+len(status.Sandboxes) != 0 {
		t.Errorf("after the removal: got %+v, want nothing", status)
	}
}

// RequestRelist reports the change of one pod before the next list.
func TestRequestRelist(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	in := f.runPipeline(runOptions{checkCache: true, Options: pipeline.Options{RelistPeriod: time.Hour}})
	must(t, awaitHealth(ctx, in, true)) // the only list has ended
	pod, err := l.RunPod(ctx, lab.PodSpec{Name: "asked"})
	step := func(err error) {
		t.Helper()
		must(t, err)
		in.pipeline.RequestRelist(podUID(pod))
		f.awaitAll(ctx)
	}
	step(err)
	c, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
	step(err)
	step(l.Trigger(ctx, c))
	step(l.StopPod(ctx, pod))
	step(l.RemovePod(ctx, pod))
}

// A subscriber with Replay gets what exists, Synced, and then new events.
func TestReplay(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	in := f.runPipeline(runOptions{checkCache: true})
	f.runPods(ctx, 3)
	c, err := l.RunContainer(ctx, f.pods[0], lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
	f.step(ctx, err) // a start and an end between two lists would be one event
	f.step(ctx, l.Trigger(ctx, c))

	late, err := in.pipeline.Subscribe(pipeline.SubscribeOptions{Name: "late", Replay: true})
	must(t, err)
	var got, want []string
	for ev := range late.Events() {
		if ev.Type == pleg.Synced {
			break
		}
		if !ev.Replayed {
			t.Errorf("%s: not marked as replayed", describe(ev))
		}
		got = append(got, describe(ev))
	}
	for _, pod := range f.pods {
		entries := l.History().Pod(pod.UID)
		want = append(want, describeEntry(entries[0])) // its sandbox
		if pod == c.Pod {
			want = append(want, describeEntry(entries[len(entries)-1]))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	must(t, l.StopPod(ctx, f.pods[2]))
	must(t, expectNext(ctx, late, pleg.ContainerDied, f.pods[2].UID))
}

func TestRequestReinspectSendsPodSync(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	in := f.runPipeline(runOptions{checkCache: true})
	f.runPods(ctx, 2)
	uid := podUID(f.pods[1])
	before := len(in.events(uid))
	in.pipeline.RequestReinspect(uid)
	must(t, eventually(ctx, func() bool { return len(in.events(uid)) > before }))
	events := in.events(uid)
	if len(events) != before+1 || events[before].Type != pleg.PodSync {
		t.Errorf("got %v, want one PodSync after %d events", events, before)
	}
}

// Network events report that a pod has its address, or that it will not get one.
// Only containerd 1.6 lists a pod whose network setup failed.
func TestNetworkEvents(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{Runtime: lab.Containerd16})
	l := f.lab
	in := f.runPipeline(runOptions{})
	sub, err := in.pipeline.Subscribe(pipeline.SubscribeOptions{
		Name: "network", NetworkEvents: true, Types: []pleg.EventType{pleg.NetworkSetupCompleted, pleg.NetworkFailed},
	})
	must(t, err)
	_, err = l.RunPod(ctx, lab.PodSpec{Name: "host", HostNetwork: true})
	must(t, err)
	good, err := l.RunPod(ctx, lab.PodSpec{Name: "good"})
	must(t, err)
	must(t, expectNext(ctx, sub, pleg.NetworkSetupCompleted, good.UID))

	must(t, l.BreakNetwork(ctx))
	bad := lab.PodSpec{Name: "bad", UID: "c0ffee00-0000-4000-8000-000000000000"}
	if _, err := l.RunPod(ctx, bad); err == nil {
		t.Fatal("containerd made a pod although the network plugin fails")
	}
	f.step(ctx, expectNext(ctx, sub, pleg.NetworkFailed, bad.UID))
	must(t, l.RepairNetwork(ctx))
}

// expectNext returns an error unless the next event is this one.
func expectNext(ctx context.Context, sub *pipeline.Subscription, want pleg.EventType, uid string) error {
	timeout := time.NewTimer(stepTimeout)
	defer timeout.Stop()
	select {
	case ev := <-sub.Events():
		if ev.Type != want || string(ev.PodUID) != uid {
			return fmt.Errorf("got %s of pod %s, want %s of %s", describe(ev), ev.PodUID, want, uid)
		}
		return nil
	case <-timeout.C:
		return fmt.Errorf("got nothing, want %s of pod %s", want, uid)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A client of the service gets what exists, and then new events.
func TestService(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	in := f.runPipeline(runOptions{checkCache: true})
	f.runPods(ctx, 3)

	srv, err := server.New(in.pipeline, server.Options{})
	must(t, err)
	socket := filepath.Join(t.TempDir(), "pleg.sock")
	kit.Run(t, func(ctx context.Context) error { return srv.ListenAndServe(ctx, socket) })
	c, err := client.New(socket, client.Options{})
	must(t, err)
	defer c.Close()

	replayed, stopped := 0, false
	for ev, err := range c.Watch(ctx, client.WatchOptions{Name: "e2e", Replay: true}) {
		must(t, err)
		switch {
		case ev.Replayed:
			replayed++
		case ev.Type == pleg.Synced:
			if replayed != len(f.pods) {
				t.Errorf("%d events replayed, want one for each of %d sandboxes", replayed, len(f.pods))
			}
			must(t, f.lab.StopPod(ctx, f.pods[0]))
			stopped = true
		case stopped && ev.Type == pleg.ContainerDied && ev.PodUID == podUID(f.pods[0]):
			return
		}
	}
	t.Error("the watch ended before the sandbox died")
}
