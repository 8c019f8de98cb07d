package bench_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// BenchmarkRelist is a relist that finds nothing changed, without the runtime's
// part in it: what comparing costs. listed=anew is what a runtime gives that
// builds each list from nothing, listed=again one that gives the same pointers
// for what did not change, as package cri does.
func BenchmarkRelist(b *testing.B) {
	const containers = 3
	for _, pods := range []int{110, 1000, 5000} {
		first, second := makePods(pods, containers), makePods(pods, containers)
		for _, listed := range []struct {
			name string
			next [2][]*pleg.Pod
		}{
			{"anew", [2][]*pleg.Pod{first, second}},
			{"again", [2][]*pleg.Pod{first, first}},
		} {
			name := fmt.Sprintf("/pods=%d/listed=%s", pods, listed.name)
			b.Run("impl=pipeline"+name, func(b *testing.B) { pipelineRelist(b, listed.next, pods) })
			b.Run("impl=serial"+name, func(b *testing.B) { serialRelist(b, listed.next, pods) })
		}
	}
}

func pipelineRelist(b *testing.B, next [2][]*pleg.Pod, pods int) {
	runtime := &memory{lists: make(chan []*pleg.Pod)}
	p, err := pipeline.New(pipeline.Options{Runtime: runtime, RelistPeriod: 1})
	if err != nil {
		b.Fatal(err)
	}
	subscription, err := p.Subscribe(pipeline.SubscribeOptions{Buffer: 8 * pods})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var run errgroup.Group
	run.Go(func() error { return p.Run(ctx) })
	events := startedEvents(next[0])
	runtime.lists <- next[0]
	for range events {
		<-subscription.Events()
	}
	// The list after the events were delivered settles what is left of them.
	runtime.lists <- next[1]
	runtime.lists <- next[0]
	b.ReportAllocs()
	for n := 1; b.Loop(); n++ {
		runtime.lists <- next[n%2]
	}
	perUnit(b, pods, "pod")
	cancel()
	if err := run.Wait(); !errors.Is(err, context.Canceled) {
		b.Error(err)
	}
	if e, open := <-subscription.Events(); open {
		b.Errorf("a relist without a change made event %+v", e)
	}
}

func serialRelist(b *testing.B, next [2][]*pleg.Pod, pods int) {
	events := make(chan pleg.Event, 8*pods)
	s, err := serial.New(&memory{}, serial.Options{Events: events})
	if err != nil {
		b.Fatal(err)
	}
	s.Apply(b.Context(), time.Now(), next[0])
	seen := len(events)
	b.ReportAllocs()
	for n := 1; b.Loop(); n++ {
		s.Apply(b.Context(), time.Now(), next[n%2])
	}
	perUnit(b, pods, "pod")
	if len(events) != seen {
		b.Errorf("relists without a change made %d events", len(events)-seen)
	}
}

// startedEvents is the number of events of running pods first seen.
func startedEvents(pods []*pleg.Pod) int {
	n := 0
	for _, p := range pods {
		n += len(p.Containers) + len(p.Sandboxes)
	}
	return n
}
