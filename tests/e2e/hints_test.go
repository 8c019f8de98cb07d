//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// rare keeps lists of all pods out of the way of events.
var rare = pipeline.Options{
	Events: pipeline.EventsAuto, RelistPeriod: time.Second, RelistPeriodWithEvents: time.Hour, RelistThresholdWithEvents: 2 * time.Hour,
}

// arrivals is when each step was first heard of.
type arrivals struct {
	mu sync.Mutex
	at map[string]time.Time
	// ended are the containers whose final status came with an event.
	ended map[string]bool
}

func (a *arrivals) note(id string, step lab.Step) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	key := id + " " + string(step)
	if _, ok := a.at[key]; !ok {
		a.at[key] = now
	}
}

func (a *arrivals) all() map[string]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.at)
}

// hearRaw notes the arrival of the runtime's events at a client that does
// nothing else, until the test ends.
func hearRaw(ctx context.Context, t *testing.T, l *lab.Lab) *arrivals {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	stream, err := l.Runtime().GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	must(t, err)
	a := &arrivals{at: make(map[string]time.Time), ended: make(map[string]bool)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		steps := map[runtimeapi.ContainerEventType]lab.Step{
			runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: lab.Started,
			runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: lab.Died,
			runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: lab.Removed,
		}
		for {
			ev, err := stream.Recv()
			if err != nil {
				return
			}
			a.noteEnded(ev.GetContainersStatuses()) // before the step, which may be waited for
			if step, ok := steps[ev.GetContainerEventType()]; ok {
				a.note(ev.GetContainerId(), step)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return a
}

// hear notes the arrival of a pipeline's events at a subscriber.
func hear(t *testing.T, p *pipeline.Pipeline) *arrivals {
	t.Helper()
	sub, err := p.Subscribe(pipeline.SubscribeOptions{})
	must(t, err)
	a := &arrivals{at: make(map[string]time.Time)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev := range sub.Events() {
			if len(ev.Type) > len("Container") {
				a.note(string(ev.ContainerID), lab.Step(ev.Type[len("Container"):]))
			}
		}
	}()
	t.Cleanup(func() {
		sub.Close()
		<-done
	})
	return a
}

// delays returns how much later than first the others heard of each step, in
// order, and the number that they never heard of.
func delays(first, other *arrivals) (late []time.Duration, missed int) {
	heard := other.all()
	for step, at := range first.all() {
		if then, ok := heard[step]; ok {
			late = append(late, then.Sub(at))
		} else {
			missed++
		}
	}
	slices.Sort(late)
	return late, missed
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(10 * time.Microsecond)
}

func logDelays(t *testing.T, who string, late []time.Duration, missed int) {
	t.Helper()
	t.Logf("%s: %d events, p50 %v, p99 %v, max %v later than the raw event; %d never", who,
		len(late), quantile(late, 0.5), quantile(late, 0.99), quantile(late, 1), missed)
}

// Every step is told to a subscriber soon after the runtime's own event: how
// soon is printed, beside a pipeline that only relists each second.
func TestEventsArriveSoonAfterTheRuntimesOwn(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	withEvents, seen := runLibrary(ctx, t, l, rare, false)
	polling, _ := runLibrary(ctx, t, l, pipeline.Options{RelistPeriod: time.Second}, false)
	raw, ours, polled := hearRaw(ctx, t, l), hear(t, withEvents), hear(t, polling)
	seen.raw = raw
	must(t, awaitHealth(ctx, withEvents, true))
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 6))
	for round := range 8 {
		for _, p := range s.pods {
			c, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: fmt.Sprint("main-", round), Program: lab.Exit(uint8(round))})
			must(t, err)
			must(t, l.Trigger(ctx, c))
			must(t, l.RemoveContainer(ctx, c))
		}
	}
	must(t, s.awaitAll(ctx))
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.RemovePod(ctx, p) }))
	checkUntold(ctx, t, l, raw, seen)
	late, missed := delays(raw, ours)
	logDelays(t, "with events", late, missed)
	if missed > 0 {
		t.Errorf("%d of the runtime's events made none of ours", missed)
	}
	late, missed = delays(raw, polled)
	logDelays(t, "relisting each second", late, missed)
}

// Containers that live for less than 50 ms and are removed at once are all seen
// with events, with every exit code that the runtime tells. How many a relist
// each second sees is printed.
func TestShortLivedContainersAreSeenByEvents(t *testing.T) {
	const containers = 50
	ctx, l := startLab(t, lab.Pinned)
	p, seen := runLibrary(ctx, t, l, rare, false)
	_, polled := runLibrary(ctx, t, l, pipeline.Options{RelistPeriod: time.Second}, false)
	raw := hearRaw(ctx, t, l)
	seen.raw = raw
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 5))
	all := make([]*lab.Container, containers)
	for i := range all {
		c, err := l.RunContainer(ctx, s.pods[i%len(s.pods)], lab.ContainerSpec{
			Name: fmt.Sprint("short-", i), Program: lab.ExitAfter(uint8(i), 20*time.Millisecond),
		})
		must(t, err)
		must(t, l.AwaitDied(ctx, c))
		must(t, removeDead(ctx, l, c))
		all[i] = c
	}
	must(t, s.awaitAll(ctx)) // Started, Died and Removed, of each
	checkUntold(ctx, t, l, raw, seen)
	for i, c := range all {
		if !raw.told(c.ID) {
			continue
		}
		if st := p.Cache().GetRemoved(pleg.ContainerID(c.ID)); st == nil || st.ExitCode != int32(i) {
			t.Errorf("the final status of container %d: %+v, want exit code %d", i, st, i)
		}
	}
	seenByPolling, withCode := 0, 0
	for _, c := range all {
		for _, ev := range polled.events(pleg.PodUID(c.Pod.UID)) {
			if string(ev.ContainerID) == c.ID && ev.Type == pleg.ContainerDied {
				seenByPolling++
				if ev.ExitCode != nil {
					withCode++
				}
			}
		}
	}
	t.Logf("of %d containers a relist each second saw the end of %d, with exit code %d", containers, seenByPolling, withCode)
}

// removeDead removes a container whose process is gone but whose shim may not be.
func removeDead(ctx context.Context, l *lab.Lab, c *lab.Container) (err error) {
	return errors.Join(eventually(ctx, func() bool {
		err = l.RemoveContainer(ctx, c)
		return err == nil
	}), err)
}

// containerd is killed amid random changes and comes back: what the cache says
// is the truth within moments, although no event tells of the time between.
func TestStormWithACrash(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	opts, registry := rare, prometheus.NewPedanticRegistry()
	opts.Registerer = registry
	p, seen := runLibrary(ctx, t, l, opts, false)
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 20))
	for round := range 2 {
		missed := counterOf(t, registry, "pleg_missed_events_total")
		victims := make([]*lab.Container, 5) // they run on until they are killed
		for i := range victims {
			c, err := l.RunContainer(ctx, s.pods[i], lab.ContainerSpec{Name: fmt.Sprint("victim-", round), Program: lab.Pause()})
			must(t, err)
			victims[i] = c
		}
		stop := time.Now().Add(6 * time.Second)
		var storm errgroup.Group
		for i, pod := range s.pods {
			storm.Go(func() error { return rage(ctx, l, pod, fmt.Sprint(round, "-", i), stop) })
		}
		must(t, sleepUntil(ctx, stop.Add(-2*time.Second)))
		l.Crash()
		_ = storm.Wait() // what hit the dead runtime has failed
		before := s.told(seen)
		for _, pod := range s.pods[:5] {
			for _, c := range pod.Containers() {
				if err := l.KillProcess(ctx, c); slices.Contains(victims, c) { // others have ended already
					must(t, err)
				}
			}
		}
		answered := firstAnswer(ctx, l)
		must(t, l.Revive(ctx))
		back := <-answered
		var diff error
		must(t, errors.Join(eventually(ctx, func() bool {
			diff = cacheEqualsRuntime(ctx, l, p)
			return diff == nil
		}), diff))
		took := time.Since(back).Round(10 * time.Millisecond)
		t.Logf("round %d: the cache was the runtime's truth %v after the first answer", round, took)
		if took > time.Second {
			t.Errorf("round %d: the cache was the runtime's truth only %v after the first answer, want 1 s", round, took)
		}
		// What a list found in place of the events is counted once none can come.
		var now float64
		must(t, eventually(ctx, func() bool {
			now = counterOf(t, registry, "pleg_missed_events_total") - missed
			return now >= float64(len(victims))
		}))
		told := s.told(seen) - before
		t.Logf("round %d: %v events missed, %d processes killed unseen, %d events told since", round, now, len(victims), told)
		if now > float64(told) {
			t.Errorf("round %d: %v events missed, but only %d told since the crash", round, now, told)
		}
	}
	for _, pod := range s.pods {
		wantForward(t, seen.events(pleg.PodUID(pod.UID)))
	}
}

// told is the number of events that an observer got of the scene's pods.
func (s *scene) told(seen *record) (n int) {
	for _, pod := range s.pods {
		n += len(seen.events(pleg.PodUID(pod.UID)))
	}
	return n
}

// firstAnswer asks a runtime that is away for its version until it answers, and
// tells when that was.
func firstAnswer(ctx context.Context, l *lab.Lab) <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() {
		_ = eventually(ctx, func() bool {
			_, err := l.Runtime().Version(ctx, &runtimeapi.VersionRequest{})
			return err == nil
		})
		at <- time.Now()
	}()
	return at
}

// counterOf returns the value of a counter.
func counterOf(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// rage has containers of a pod start, end and go until a time or an error.
func rage(ctx context.Context, l *lab.Lab, pod *lab.Pod, name string, until time.Time) error {
	for n := 0; time.Now().Before(until); n++ {
		c, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: fmt.Sprint(name, "-", n), Program: lab.Exit(uint8(n % 100))})
		if err != nil || n%3 == 2 {
			return err // it runs on
		}
		if err := l.Trigger(ctx, c); err != nil {
			return err
		}
		if n%3 == 0 {
			continue // it stays, dead
		}
		if err := l.RemoveContainer(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cacheEqualsRuntime compares the cache with what the runtime lists.
func cacheEqualsRuntime(ctx context.Context, l *lab.Lab, p *pipeline.Pipeline) error {
	containers, err := l.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	sandboxes, err := l.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	want, got := make(map[string]string), make(map[string]string)
	for _, c := range containers.GetContainers() {
		want[c.GetId()] = fmt.Sprint(c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING, c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED)
	}
	for _, s := range sandboxes.GetItems() {
		want[s.GetId()] = fmt.Sprint(s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY)
	}
	for _, e := range p.Cache().List() {
		if e.Err != nil {
			return fmt.Errorf("pod %s: %w", e.UID, e.Err)
		}
		for _, c := range e.Status.Containers {
			got[string(c.ID)] = fmt.Sprint(c.State == pleg.StateRunning, c.State == pleg.StateExited)
		}
		for _, s := range e.Status.Sandboxes {
			got[string(s.ID)] = fmt.Sprint(s.Ready)
		}
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("the cache has %d containers and sandboxes, the runtime %d, or they differ", len(got), len(want))
	}
	return nil
}

// wantForward demands that each container's events go forward, none twice.
func wantForward(t *testing.T, events []pleg.Event) {
	t.Helper()
	order := map[pleg.EventType]int{pleg.ContainerStarted: 1, pleg.ContainerDied: 2, pleg.ContainerRemoved: 3}
	reached := make(map[pleg.ContainerID]int)
	for _, ev := range events {
		if order[ev.Type] <= reached[ev.ContainerID] && ev.Type != pleg.PodSync {
			t.Errorf("%s comes after one as far or farther", describe(ev))
		}
		reached[ev.ContainerID] = order[ev.Type]
	}
}

// A storm on 20 pods at once is told whole: each step that was done, in order,
// none twice, with every exit code that the runtime tells.
func TestStormIsToldWhole(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	_, seen := runLibrary(ctx, t, l, rare, false)
	raw := hearRaw(ctx, t, l)
	seen.raw = raw
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 20))
	must(t, s.each(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		for n := range 12 {
			c, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Attempt: uint32(n), Program: lab.Exit(uint8(rng.IntN(256)))})
			if err != nil {
				return err
			}
			if rng.IntN(5) == 0 {
				continue // it runs on
			}
			end := l.Trigger
			if rng.IntN(3) == 0 {
				end = l.Kill
			}
			if err := end(ctx, c); err != nil {
				return err
			}
			if rng.IntN(2) == 0 {
				if err := removeDead(ctx, l, c); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.RemovePod(ctx, p) }))
	checkUntold(ctx, t, l, raw, seen)
	t.Logf("%d steps", len(l.Ledger().All()))
}
