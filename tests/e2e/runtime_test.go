//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// rareLists makes CRI events the only source of changes, except for what a runtime
// does not announce.
var rareLists = pipeline.Options{
	Events: pipeline.EventsAuto, RelistPeriod: time.Second, RelistPeriodWithEvents: time.Hour,
}

// After a restart of containerd, pipelines that poll and that follow the CRI events, and the
// program, report what happened meanwhile, and nothing else.
func TestRestartOfContainerd(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	following := rareLists
	following.RelistPeriod = relistPeriod
	pipelines := []*instance{
		f.runPipeline(runOptions{name: "polling", checkCache: true}),
		f.runPipeline(runOptions{name: "events", Options: following, checkCache: true}),
	}
	program := f.runProgram(ctx)
	f.runPods(ctx, 5)
	f.runContainers(ctx, mainExits)
	f.triggerAll(ctx)
	f.runContainers(ctx, func(int) lab.ContainerSpec {
		return lab.ContainerSpec{Name: "main", Attempt: 1, Program: lab.Pause()}
	})

	before := time.Now()
	f.restartWithDeath(ctx, newest(f.pods[0]))
	f.awaitAll(ctx)
	for _, in := range pipelines {
		status, err := in.pipeline.Cache().GetNewerThan(ctx, podUID(f.pods[1]), before)
		must(t, err)
		if c := status.Container(pleg.ContainerID(newest(f.pods[1]).ID)); c == nil || c.State != pleg.StateRunning {
			t.Errorf("%s: a pod that survived the restart: got %+v", in.name, status.Containers)
		}
		if ok, err := in.pipeline.Healthy(); !ok {
			t.Errorf("%s: unhealthy: %v", in.name, err)
		}
	}
	f.stopPods(ctx)
	f.removePods(ctx)
	program.stop(t)
}

// If containerd freezes, a pipeline becomes unhealthy in time, also if it lists rarely,
// because events stand in for lists. Once containerd continues, the pipeline is healthy,
// follows the events, and reports what happened meanwhile.
func TestFrozenContainerd(t *testing.T) {
	const pollingThreshold, eventsThreshold = time.Second, 2 * time.Second
	probes := cri.Options{EventProbePeriod: time.Second, EventProbeTimeout: 500 * time.Millisecond}
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	limits := map[*instance]time.Duration{
		f.runPipeline(runOptions{name: "polling", checkCache: true, Options: pipeline.Options{
			ListTimeout: 300 * time.Millisecond, InspectTimeout: time.Second, RelistThreshold: pollingThreshold,
		}}): pollingThreshold,
	}
	following := func() bool { return true }
	if l.Traits().Events {
		o := rareLists
		o.RelistPeriod, o.RelistThreshold = relistPeriod, eventsThreshold
		in := f.runPipeline(runOptions{name: "events", Options: o, cri: probes})
		limits[in] = eventsThreshold + probes.EventProbePeriod + 2*probes.EventProbeTimeout
		following = func() bool { return in.metric("pleg_event_stream_up") == 1 }
	}
	f.runPods(ctx, 3)
	killed := f.runContainer(ctx, f.pods[0], lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	exits := f.runContainer(ctx, f.pods[1], lab.ContainerSpec{Name: "main", Program: lab.Exit(3)})
	f.awaitAll(ctx)
	must(t, eventually(ctx, following))

	frozen := time.Now()
	must(t, l.Freeze(ctx))
	must(t, l.KillProcess(ctx, killed))
	for in, limit := range limits {
		must(t, in.awaitHealth(ctx, false))
		took := time.Since(frozen)
		t.Logf("%s: unhealthy after %v", in.name, took.Round(10*time.Millisecond))
		// The last list before the freeze counts, which is old on a busy machine.
		if took > limit+late || in.name == "events" && took < eventsThreshold/2 {
			t.Errorf("%s: unhealthy %v after the freeze, want about %v", in.name, took, limit)
		}
		if _, err := in.pipeline.Cache().Get(podUID(killed.Pod)); err != nil {
			t.Errorf("%s: the cache lost a pod while the runtime was frozen: %v", in.name, err)
		}
	}
	if l.Traits().Events && following() {
		t.Error("the event stream of a frozen containerd is up")
	}
	must(t, l.Thaw())
	for in := range limits {
		must(t, in.awaitHealth(ctx, true))
	}
	must(t, eventually(ctx, following))
	f.step(ctx, l.AwaitDied(ctx, killed))
	f.step(ctx, l.Trigger(ctx, exits))
}

// containerd 1.6 has no events: the pipeline polls, unless events are required. It lists a
// pod whose network setup failed, as no other runtime does: then network events report that
// a pod has its address, or that it will not get one.
func TestContainerd16(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{Runtime: lab.Containerd16})
	l := f.lab
	in := f.runPipeline(runOptions{name: "off", checkCache: true})
	f.runPipeline(runOptions{name: "auto", Options: pipeline.Options{Events: pipeline.EventsAuto}, checkCache: true})
	sub, err := in.pipeline.Subscribe(pipeline.SubscribeOptions{
		Name: "network", Filter: pleg.Filter{NetworkEvents: true, Types: []pleg.EventType{pleg.NetworkSetupCompleted, pleg.NetworkFailed}},
	})
	must(t, err)
	host, err := l.RunPod(ctx, lab.PodSpec{Name: "host", HostNetwork: true})
	f.step(ctx, err)
	good, err := l.RunPod(ctx, lab.PodSpec{Name: "good"})
	f.step(ctx, err)
	must(t, expectNext(ctx, sub, pleg.NetworkSetupCompleted, good.UID))
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
	f.step(ctx, expectNext(ctx, sub, pleg.NetworkFailed, bad.UID))
	must(t, l.RepairNetwork(ctx))

	client, err := cri.New(l.Endpoint(), cri.Options{})
	must(t, err)
	strict, err := pipeline.New(pipeline.Options{Runtime: client, Events: pipeline.EventsRequire})
	must(t, err)
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := strict.Run(ctx); !errors.Is(err, pleg.ErrNoEvents) {
		t.Errorf("run with required events: got %v, want %v", err, pleg.ErrNoEvents)
	}
	must(t, client.Close())
}

// expectNext returns an error unless the next event is this one.
func expectNext(ctx context.Context, sub *pipeline.Subscription, want pleg.EventType, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	select {
	case ev := <-sub.Events():
		if ev.Type != want || string(ev.PodUID) != uid {
			return fmt.Errorf("got %s of pod %s, want %s of %s", describe(ev), ev.PodUID, want, uid)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("want %s of pod %s: %w", want, uid, context.Cause(ctx))
	}
}
