package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// burst measures pods whose containers all exit at once.
type burst struct {
	pods, containers int
	profile          string
	// limit is the number of calls the runtime serves at once; 0 means any.
	limit int
	// hung is the number of changing pods whose status calls hang.
	hung int
	// carried lets sandbox statuses carry the container statuses, as CRI-O's do.
	carried bool
}

func (w burst) measure(ctx context.Context, l *lab) Metrics {
	l.shape("zero", w.limit)
	l.populate(ctx, w.pods, w.containers)
	l.shape(w.profile, w.limit)
	l.hang(w.hung)
	r := l.window(exited(w.pods-w.hung, w.containers), func() { l.burst(w.pods, simruntime.Exit) })
	m := l.burstMetrics(r, w.pods)
	if w.hung > 0 || w.profile == "zero" {
		// Neither the time of a hung call nor calls without latency set a limit.
		delete(m, "limit")
	}
	return m
}

// started are the events of new running pods.
func started(pods, containers int) map[string]int {
	return map[string]int{"ContainerStarted": pods * (containers + 1)}
}

// exited are the events of pods whose containers exit.
func exited(pods, containers int) map[string]int {
	return map[string]int{"ContainerDied": pods * containers}
}

// startCold is a cold start on a node with many finished pods.
func startCold(_ context.Context, l *lab) Metrics {
	const running, finished, containers = 110, 1000, 2
	l.runtime.Populate(simruntime.Population{Pods: running, Containers: containers})
	done := l.runtime.Populate(simruntime.Population{Pods: finished, Containers: containers, Exited: containers})
	l.runtime.Update(func(s *simruntime.State) {
		for _, p := range done {
			l.fail(s.StopPod(p.UID))
		}
	})
	l.shape("node", 0)
	l.reset()
	want := started(running, containers)
	want["ContainerDied"] = finished * (containers + 1)
	r := l.startClient(want)
	m := l.burstMetrics(r, running+finished)
	m["running"] = r.Seen["ContainerStarted"].LastMS
	return m
}

// restart restarts the containers of pods a number of times; the exited containers stay. It
// measures the last restart.
func restart(times int) func(context.Context, *lab) Metrics {
	const pods, containers = 110, 2
	return func(ctx context.Context, l *lab) Metrics {
		l.populate(ctx, pods, containers)
		var r probe.Report
		for range times {
			r = l.window(map[string]int{"ContainerDied": pods * containers, "ContainerStarted": pods * containers}, func() {
				l.burst(pods, simruntime.Restart)
			})
		}
		return l.burstMetrics(r, pods)
	}
}

// longest bounds the wait for events: 1000 pods take 35 s with one call at a time.
const longest = 6 * time.Minute

// idlePeriod is shorter than the kubelet's second, to measure relists and not the
// time between them.
const idlePeriod = 50 * time.Millisecond

// idle measures relists without a change. The figures are those of one relist.
func idle(pods int) func(context.Context, *lab) Metrics {
	const relists = 40
	return func(ctx context.Context, l *lab) Metrics {
		l.populate(ctx, pods, 2)
		l.call("Expect", nil)
		began := time.Now()
		l.reset()
		for l.err == nil && l.lists() < relists {
			if time.Since(began) > longest {
				l.fail(fmt.Errorf("fewer than %d relists in %v", relists, longest))
			}
			l.pause(ctx, idlePeriod)
		}
		lists, r := l.lists(), l.call("Wait", 0)
		l.fail(requireIdle(r, statusCalls(l.runtime.Stats())))
		return idleMetrics(r, float64(lists))
	}
}

func requireIdle(r probe.Report, calls int64) error {
	if len(r.Seen) > 0 || calls > 0 {
		return fmt.Errorf("wrong work: events %v and %d status calls on an idle node", r.Seen, calls)
	}
	return nil
}

// idleMetrics is the cost of a window without a change, divided by n.
func idleMetrics(r probe.Report, n float64) Metrics {
	return Metrics{"client": r.Usage.CPUSeconds * 1e3 / n, "allocs": float64(r.Usage.Allocs) / n}
}

const quietSpan = 10 * time.Second

// quiet measures a node on which nothing changes for a time. The figures are those of a minute.
func quiet(ctx context.Context, l *lab) Metrics {
	l.populate(ctx, 110, 2)
	l.call("Expect", nil)
	l.reset()
	l.pause(ctx, quietSpan)
	lists, r := l.lists(), l.call("Wait", 0)
	l.fail(errors.Join(requireIdle(r, statusCalls(l.runtime.Stats())), requireLists(l.candidate, lists)))
	return idleMetrics(r, r.Usage.WallSeconds/60)
}

// requireLists returns an error unless the candidate made a list each period of a quiet time,
// or fewer than half of them with CRI events: the pipeline lists at growing intervals while
// its event stream announces every change.
func requireLists(c Candidate, lists int64) error {
	if half := int64(quietSpan / relistPeriod / 2); c.events() != (lists < half) {
		return fmt.Errorf("wrong work: %d lists on an idle node in %v", lists, quietSpan)
	}
	return nil
}

// change replaces containers one after the other, ten a second.
func change(ctx context.Context, l *lab) Metrics {
	const times, rate = 100, 10
	l.populate(ctx, 110, 2)
	l.shape("node", 0)
	var made []probe.Arrival
	r := l.window(map[string]int{"ContainerStarted": times, "ContainerDied": times, "ContainerRemoved": times}, func() {
		made = l.replace(ctx, times, rate)
	})
	return Metrics{"p50": median(delays(made, r.Log))}
}

// delays returns the times in milliseconds from each change to its event.
func delays(changes, events []probe.Arrival) []float64 {
	arrived := make(map[string]int64, len(events))
	for _, e := range events {
		if e.Type == "ContainerStarted" {
			arrived[e.ID] = e.UnixNS
		}
	}
	var out []float64
	for _, c := range changes {
		if at, ok := arrived[c.ID]; ok {
			out = append(out, float64(at-c.UnixNS)/1e6)
		}
	}
	return out
}

// median returns 0 if there are no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
