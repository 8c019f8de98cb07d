//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// rareLists makes CRI events the only source of changes.
var rareLists = pipeline.Options{
	Events: pipeline.EventsAuto, RelistPeriod: time.Second, RelistPeriodWithEvents: time.Hour, RelistThresholdWithEvents: 2 * time.Hour,
}

// CRI events replace the lists. A list finds what happened while the event
// stream was down.
func TestEventsReplaceLists(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	l, o := f.lab, rareLists
	o.RelistPeriod = relistPeriod
	f.runPipeline(ctx, runOptions{Options: o, checkCache: true})
	f.runPods(ctx, 4)
	f.runContainers(ctx, mainExits)
	f.triggerAll(ctx)
	c, err := l.RunContainer(ctx, f.pods[0], lab.ContainerSpec{Name: "main", Attempt: 1, Program: lab.Pause()})
	must(t, err)
	f.awaitAll(ctx)

	l.Crash()
	must(t, l.KillProcess(ctx, c))
	must(t, l.Revive(ctx))
	must(t, l.AwaitDied(ctx, c))
	f.awaitAll(ctx)
	f.stopPods(ctx)
	f.removePods(ctx)
}

// If the runtime has no events, the pipeline polls, unless events are required.
func TestRuntimeWithoutEvents(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{Debian: true})
	f.runPipeline(ctx, runOptions{Options: pipeline.Options{Events: pipeline.EventsAuto}, checkCache: true})
	f.runPods(ctx, 2)
	f.stopPods(ctx)

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
	following := f.runPipeline(ctx, runOptions{Options: rareLists})
	polling := f.runPipeline(ctx, runOptions{Options: pipeline.Options{RelistPeriod: time.Second}, incomplete: true})
	following.criEvents = receiveCRIEvents(ctx, t, l)
	followed, polled := receiveEvents(t, following.pipeline), receiveEvents(t, polling.pipeline)
	must(t, awaitHealth(ctx, following, true))
	f.runPods(ctx, 6)
	for round := range 8 {
		for _, p := range f.pods {
			c, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: fmt.Sprint("main-", round), Program: lab.Exit(uint8(round))})
			must(t, err)
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
	in := f.runPipeline(ctx, runOptions{Options: rareLists})
	polling := f.runPipeline(ctx, runOptions{Options: pipeline.Options{RelistPeriod: time.Second}, incomplete: true})
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
	in := f.runPipeline(ctx, runOptions{Options: o, cri: calls})
	streamUp := func() float64 { return metric(t, registry, "pleg_event_stream_up") }
	follows := func() bool {
		ok, _ := in.pipeline.Healthy()
		return ok && streamUp() == 1
	}
	f.runPods(ctx, 2)
	c, err := l.RunContainer(ctx, f.pods[0], lab.ContainerSpec{Name: "main", Program: lab.Exit(3)})
	must(t, err)
	f.awaitAll(ctx)
	must(t, eventually(ctx, follows))

	frozen := time.Now()
	must(t, l.Freeze(ctx))
	must(t, awaitHealth(ctx, in, false))
	took := time.Since(frozen)
	t.Logf("unhealthy after %v", took.Round(10*time.Millisecond))
	if took < threshold || took > threshold+detected+late {
		t.Errorf("unhealthy %v after the freeze, want %v to %v", took, threshold, threshold+detected)
	}
	if up := streamUp(); up != 0 {
		t.Errorf("pleg_event_stream_up is %v, want 0", up)
	}
	must(t, l.Thaw())
	must(t, eventually(ctx, follows))
	must(t, l.Trigger(ctx, c))
	f.awaitAll(ctx)
}
