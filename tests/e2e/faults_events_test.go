//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// eventFaults break the stream of CRI events.
var eventFaults = []fault{
	{name: "another client does not read its CRI events", drops: true, short: true, instances: longTimeouts, pods: 20, run: droppedEvents},
}

const (
	// maxRounds bounds how many lives of a container in each pod fill CRI-O's channel. A
	// life has four events.
	maxRounds = 40
	// keptEvents is the size of the channel.
	keptEvents = 1000

	missedAttempts     = "pleg_missed_attempts_total"
	staleObservations  = "pleg_stale_observations_total"
	unannouncedChanges = "pleg_missed_events_total"
)

// droppedEvents: another client opens a stream and does not read it. CRI-O sends each
// event to one client after the other, so nobody gets events any more; it keeps 1000 of
// them and drops the rest. Lists must report each step that they show. What lived
// between two lists is counted, and the events that come once the other client has left
// must report nothing again.
func droppedEvents(ctx context.Context, f *fixture) {
	t := f.t
	following := f.instances[1]
	leave := stallClient(ctx, f, f.largePod(ctx))
	before := following.metric(ctx, t, unannouncedChanges)
	steps := f.liveUntilDropped(ctx)
	// A step counts once its event is 5 s late.
	must(t, eventually(ctx, func() bool { return following.metric(ctx, t, unannouncedChanges)-before >= float64(steps)/2 }))
	f.liveBetweenLists(ctx)
	late := following.metric(ctx, t, staleObservations)
	f.endFault()
	leave()
	must(t, eventually(ctx, func() bool { return following.metric(ctx, t, staleObservations)-late >= keptEvents/2 }))
	f.checkAfterFault(ctx, false)
}

// largePod returns a pod whose CRI events are so large that few of them fill the buffers
// of a connection.
func (f *fixture) largePod(ctx context.Context) *lab.Pod {
	f.t.Helper()
	pod, err := f.lab.RunPod(ctx, lab.PodSpec{
		Name: "large", HostNetwork: true, Annotations: map[string]string{"large": strings.Repeat("x", 200<<10)},
	})
	must(f.t, err)
	f.awaitAll(ctx)
	return pod
}

// stallClient opens a stream, which is not read once CRI-O sends to it, and has CRI-O
// fill its buffers.
func stallClient(ctx context.Context, f *fixture, large *lab.Pod) (leave func()) {
	t := f.t
	t.Helper()
	client, err := cri.New(f.lab.Endpoint(), cri.Options{})
	must(t, err)
	ctx, cancel := context.WithCancel(ctx)
	leave = sync.OnceFunc(func() {
		cancel()
		must(t, client.Close())
	})
	t.Cleanup(leave)
	stream, err := runtimeapi.NewRuntimeServiceClient(client.Conn()).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	must(t, err)
	received := make(chan error, 1)
	go func() { // returns with the first event, or when ctx ends
		_, err := stream.Recv()
		received <- err
	}()
	for n := 0; ; n++ {
		f.liveAndGo(ctx, large, fmt.Sprint("filler-", n))
		select {
		case err := <-received:
			must(t, err)
			for more := range 4 {
				f.liveAndGo(ctx, large, fmt.Sprint("stall-", more))
			}
			return leave
		default:
		}
	}
}

// liveAndGo starts, ends and removes a container, and awaits each step.
func (f *fixture) liveAndGo(ctx context.Context, pod *lab.Pod, name string) {
	f.t.Helper()
	c := f.runContainer(ctx, pod, lab.ContainerSpec{Name: name, Program: lab.Exit(3)})
	f.awaitAll(ctx)
	f.step(ctx, f.lab.Trigger(ctx, c))
	f.step(ctx, f.lab.RemoveContainer(ctx, c))
}

// liveUntilDropped starts, ends and removes a container in each pod, again and again,
// until CRI-O has dropped the events of a round. It awaits each step, and returns the
// number of steps.
func (f *fixture) liveUntilDropped(ctx context.Context) (steps int) {
	t := f.t
	t.Helper()
	for round := range maxRounds {
		spec := lab.ContainerSpec{Name: "life", Attempt: uint32(round), Program: lab.Exit(uint8(round))}
		f.runContainers(ctx, func(int) lab.ContainerSpec { return spec })
		f.triggerAll(ctx)
		f.forEachPod(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return removeDead(ctx, f.lab, newest(p)) })
		steps += 3 * len(f.pods)
		dropped, err := f.lab.DroppedEvents()
		must(t, err)
		if dropped >= 3*len(f.pods) {
			t.Logf("CRI-O dropped %d events; lists reported %d steps in %d rounds", dropped, steps, round+1)
			return steps
		}
	}
	t.Fatalf("CRI-O dropped no events in %d rounds", maxRounds)
	return 0
}

// liveBetweenLists makes containers that live for a moment. Each instance must have
// reported each of them, or have counted it.
func (f *fixture) liveBetweenLists(ctx context.Context) {
	const hidden = 5
	t, pod := f.t, f.pods[0]
	t.Helper()
	first := f.runContainer(ctx, pod, lab.ContainerSpec{Name: "brief", Program: lab.Exit(1)})
	f.awaitAll(ctx)
	f.step(ctx, f.lab.Trigger(ctx, first))
	before := make(map[*instance]float64)
	for _, in := range f.instances {
		before[in] = in.metric(ctx, t, missedAttempts)
	}
	from := time.Now()
	brief := make(map[string]bool)
	for n := range uint32(hidden) {
		c := f.runContainer(ctx, pod, lab.ContainerSpec{Name: "brief", Attempt: n + 1, Program: lab.ExitAfter(1, time.Millisecond)})
		brief[c.ID] = true
		must(t, f.lab.AwaitDied(ctx, c))
		must(t, removeDead(ctx, f.lab, c))
	}
	for _, in := range f.instances {
		in.paused = outage{from: from, to: time.Now(), queued: true}
	}
	f.runContainer(ctx, pod, lab.ContainerSpec{Name: "brief", Attempt: hidden + 1, Program: lab.Pause()})
	f.awaitAll(ctx)
	for _, in := range f.instances {
		reported := make(map[string]bool)
		for _, ev := range in.events(podUID(pod)) {
			if brief[string(ev.ContainerID)] && ev.Type == pleg.ContainerDied {
				reported[string(ev.ContainerID)] = true
			}
		}
		counted := int(in.metric(ctx, t, missedAttempts) - before[in])
		t.Logf("%s: of %d containers between two lists %d were reported and %d counted", in.name, hidden, len(reported), counted)
		if len(reported)+counted < hidden {
			t.Errorf("%s: %d of %d containers were neither reported nor counted", in.name, hidden-len(reported)-counted, hidden)
		}
	}
}
