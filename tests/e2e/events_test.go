//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// rareLists makes CRI events the only source of changes, except for what a runtime
// does not announce.
var rareLists = pipeline.Options{
	Events: pipeline.EventsAuto, RelistPeriod: time.Second, RelistPeriodWithEvents: time.Hour,
}

// CRI events replace the lists. A list finds what happened while the event
// stream was down.
func TestEventsReplaceLists(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	o := rareLists
	o.RelistPeriod = relistPeriod
	f.runPipeline(runOptions{Options: o, checkCache: true})
	f.runPods(ctx, 4)
	f.runContainers(ctx, mainExits)
	f.triggerAll(ctx)
	c := f.runContainer(ctx, f.pods[0], lab.ContainerSpec{Name: "main", Attempt: 1, Program: lab.Pause()})
	f.awaitAll(ctx)

	f.restartWithDeath(ctx, c)
	f.awaitAll(ctx)
	f.stopPods(ctx)
	f.removePods(ctx)
}

// If the runtime has no events, like containerd 1.6, the pipeline polls, unless
// events are required.
func TestRuntimeWithoutEvents(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{Runtime: lab.Containerd16})
	for _, mode := range []pipeline.EventsMode{pipeline.EventsOff, pipeline.EventsAuto} {
		f.runPipeline(runOptions{Options: pipeline.Options{Events: mode}, checkCache: true})
	}
	f.runPods(ctx, 2)
	f.runContainers(ctx, mainExits)
	f.triggerAll(ctx)
	f.stopPods(ctx)
	f.removePods(ctx)

	client, err := cri.New(f.lab.Endpoint(), cri.Options{})
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

// A subscriber gets each event soon after the CRI event. The delays are logged,
// beside those of a pipeline that polls.
func TestEventsArriveSoonAfterCRIEvents(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	following := f.runPipeline(runOptions{Options: rareLists})
	polling := f.runPipeline(runOptions{Options: pipeline.Options{RelistPeriod: time.Second}, incomplete: true})
	following.criEvents = receiveCRIEvents(ctx, t, l)
	followed, polled := receiveEvents(t, following.pipeline), receiveEvents(t, polling.pipeline)
	must(t, awaitHealth(ctx, following, true))
	f.runPods(ctx, 6)
	for round := range 8 {
		for _, p := range f.pods {
			c := f.runContainer(ctx, p, lab.ContainerSpec{Name: fmt.Sprint("main-", round), Program: lab.Exit(uint8(round))})
			must(t, l.Trigger(ctx, c))
			must(t, l.RemoveContainer(ctx, c))
		}
	}
	f.awaitAll(ctx)
	f.removePods(ctx)
	checkExitCodes(ctx, t, l, following)
	if absent := logDelays(t, "with events", following.criEvents, followed); absent > 0 {
		t.Errorf("%d CRI events caused no event", absent)
	}
	logDelays(t, "polling each second", following.criEvents, polled)
}

// With events, a pipeline reports containers that live for less than 50 ms and
// are removed at once. The log says how many of them polling reports.
func TestEventsReportShortContainers(t *testing.T) {
	const containers = 50
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	in := f.runPipeline(runOptions{Options: rareLists})
	polling := f.runPipeline(runOptions{Options: pipeline.Options{RelistPeriod: time.Second}, incomplete: true})
	in.criEvents = receiveCRIEvents(ctx, t, l)
	f.runPods(ctx, 5)
	all := make([]*lab.Container, containers)
	for i := range all {
		c, err := l.RunContainer(ctx, f.pods[i%len(f.pods)], lab.ContainerSpec{
			Name: fmt.Sprint("short-", i), Program: lab.ExitAfter(uint8(i), 20*time.Millisecond),
		})
		must(t, err)
		must(t, l.AwaitDied(ctx, c))
		must(t, removeDead(ctx, l, c))
		all[i] = c
	}
	f.awaitAll(ctx)
	checkExitCodes(ctx, t, l, in)
	for i, c := range all {
		if !in.criEvents.haveExitCode(c.ID) {
			continue
		}
		if st := in.pipeline.Cache().GetRemoved(pleg.ContainerID(c.ID)); st == nil || st.ExitCode != int32(i) {
			t.Errorf("the final status of container %d: %+v, want exit code %d", i, st, i)
		}
	}
	reported, withCode := 0, 0
	for _, c := range all {
		for _, ev := range polling.events(podUID(c.Pod)) {
			if string(ev.ContainerID) == c.ID && ev.Type == pleg.ContainerDied {
				reported++
				if ev.ExitCode != nil {
					withCode++
				}
			}
		}
	}
	t.Logf("of %d containers, polling each second reported the end of %d, with exit code %d", containers, reported, withCode)
}

// removeDead removes a container whose process is gone but whose shim may still
// run.
func removeDead(ctx context.Context, l *lab.Lab, c *lab.Container) (err error) {
	return errors.Join(eventually(ctx, func() bool {
		err = l.RemoveContainer(ctx, c)
		return err == nil
	}), err)
}

// If containerd freezes, the pipeline becomes unhealthy, although lists are
// rare. It follows the events again once containerd goes on.
func TestFrozenContainerdEndsTheEventStream(t *testing.T) {
	const threshold = 2 * time.Second
	calls := cri.Options{EventProbePeriod: time.Second, EventProbeTimeout: 500 * time.Millisecond}
	detected := calls.EventProbePeriod + 2*calls.EventProbeTimeout
	ctx, f := newFixture(t, lab.Options{})
	l, o, registry := f.lab, rareLists, prometheus.NewPedanticRegistry()
	o.RelistPeriod, o.RelistThreshold, o.Registerer = relistPeriod, threshold, registry
	in := f.runPipeline(runOptions{Options: o, cri: calls})
	streamUp := func() float64 { return kit.Metric(t, registry, "pleg_event_stream_up") }
	follows := func() bool {
		ok, _ := in.pipeline.Healthy()
		return ok && streamUp() == 1
	}
	f.runPods(ctx, 2)
	c := f.runContainer(ctx, f.pods[0], lab.ContainerSpec{Name: "main", Program: lab.Exit(3)})
	f.awaitAll(ctx)
	must(t, eventually(ctx, follows))

	frozen := time.Now()
	must(t, l.Freeze(ctx))
	must(t, awaitHealth(ctx, in, false))
	took := time.Since(frozen)
	t.Logf("unhealthy after %v", took.Round(10*time.Millisecond))
	// The last list before the freeze counts, which is old on a busy machine.
	if took < threshold/2 || took > threshold+detected+late {
		t.Errorf("unhealthy %v after the freeze, want %v to %v", took, threshold, threshold+detected)
	}
	if up := streamUp(); up != 0 {
		t.Errorf("pleg_event_stream_up is %v, want 0", up)
	}
	must(t, l.Thaw())
	must(t, eventually(ctx, follows))
	f.step(ctx, l.Trigger(ctx, c))
}

// With events, an idle node is listed more and more rarely instead of each second: after
// 1, 2, 4 and 8 s, and then each 10 s, because silence proves nothing. The log has the CPU
// time of this process and of containerd, which is never quite idle.
func TestIdleNodeIsListedRarelyWithEvents(t *testing.T) {
	const pods, span = 100, time.Minute
	ctx, f := newFixture(t, lab.Options{})
	specs := make([]lab.PodSpec, pods)
	for i := range specs {
		specs[i] = lab.PodSpec{Name: fmt.Sprint("idle-", i), HostNetwork: true}
	}
	_, err := f.lab.RunPods(ctx, specs)
	must(t, err)
	_, alone := cpuTimes(ctx, t, f.lab, span)
	pollAgent, pollRuntime, pollLists := idle(ctx, t, f.lab, span, pipeline.Options{})
	eventAgent, eventRuntime, eventLists := idle(ctx, t, f.lab, span, pipeline.Options{Events: pipeline.EventsAuto})
	share := func(d time.Duration) string {
		return fmt.Sprintf("%v (%.2f %% of a core)", d, 100*d.Seconds()/span.Seconds())
	}
	t.Logf("%d pods, CPU time in %v: containerd alone %s", pods, span, share(alone))
	t.Logf("a relist each second: containerd %s, this process %s, %d lists", share(pollRuntime), share(pollAgent), pollLists)
	t.Logf("with events: containerd %s, this process %s, %d lists", share(eventRuntime), share(eventAgent), eventLists)
	if eventLists > 14 || pollLists < 20 {
		t.Errorf("%d lists with events, want about one each 10 s after the first few; %d without, want one each second", eventLists, pollLists)
	}
}

// idle runs a pipeline on an idle runtime and returns what it costs.
func idle(ctx context.Context, t *testing.T, l *lab.Lab, span time.Duration, o pipeline.Options) (agent, runtime time.Duration, lists int64) {
	t.Helper()
	client, err := cri.New(l.Endpoint(), cri.Options{})
	must(t, err)
	counted := &countedLists{Client: client}
	o.Runtime = counted
	p, err := pipeline.New(o)
	must(t, err)
	stop := kit.Run(t, p.Run) //nolint:contextcheck // kit.Run ends it with a context of its own
	must(t, eventually(ctx, func() bool { ok, _ := p.Healthy(); return ok }))
	agent, runtime = cpuTimes(ctx, t, l, span)
	lists = counted.lists.Load()
	_ = stop() // Run reports the error
	must(t, client.Close())
	return agent, runtime, lists
}

// cpuTimes returns the CPU time of this process and of containerd in a span,
// after 3 s for whatever the start caused.
func cpuTimes(ctx context.Context, t *testing.T, l *lab.Lab, span time.Duration) (agent, runtime time.Duration) {
	t.Helper()
	must(t, sleepUntil(ctx, time.Now().Add(3*time.Second)))
	agent, runtime = cpuTime(t, os.Getpid()), cpuTime(t, l.PID())
	must(t, sleepUntil(ctx, time.Now().Add(span)))
	return cpuTime(t, os.Getpid()) - agent, cpuTime(t, l.PID()) - runtime
}

// cpuTime returns the CPU time of a process; the kernel counts it in 1/100 s.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{PidFn: func() (int, error) { return pid, nil }}))
	return time.Duration(kit.Metric(t, registry, "process_cpu_seconds_total") * float64(time.Second)).Round(10 * time.Millisecond)
}

// countedLists counts the lists of all pods.
type countedLists struct {
	*cri.Client
	lists atomic.Int64
}

func (c *countedLists) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	c.lists.Add(1)
	return c.Client.ListPods(ctx)
}
