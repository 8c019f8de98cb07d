package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/bench/node"
)

// idlePeriod is shorter than the kubelet's second, to measure relists and not the
// time between them.
const idlePeriod = 50 * time.Millisecond

// idles are relists in which nothing changes.
func idles() []Scenario {
	const relists = 40
	var all []Scenario
	for _, pods := range []int{110, 1000, 5000} {
		measure := func(ctx context.Context, l *lab) Metrics {
			l.populate(ctx, pods, 2)
			l.command(control.Command{Do: control.ClientExpect})
			began := time.Now()
			l.node.Reset()
			for l.err == nil && l.node.Stats().RPCs["ListContainers"].Calls < relists {
				if time.Since(began) > longest {
					l.fail(fmt.Errorf("fewer than %d relists in %v", relists, longest))
				}
				l.pause(ctx, idlePeriod)
			}
			at, r := l.node.Stats(), l.command(control.Command{Do: control.ClientReport})
			if len(r.Seen) > 0 || at.StatusCalls() > 0 {
				l.fail(fmt.Errorf("wrong work: events %v and %d status calls on an idle node", r.Seen, at.StatusCalls()))
			}
			return idleMetrics(r, at, float64(at.RPCs["ListContainers"].Calls))
		}
		all = append(all, Scenario{
			Name:       fmt.Sprintf("idle/pods=%d", pods),
			Title:      fmt.Sprintf("one relist of %d unchanged pods x 2", pods),
			Candidates: candidates(oneWidth), InQuick: true, Measure: inLab(idlePeriod, callTimeout, false, measure),
		})
	}
	return all
}

// idleMetrics is the cost of a window without a change, divided by n.
func idleMetrics(r control.Report, at node.Stats, n float64) Metrics {
	return Metrics{
		"client": r.Usage.CPUSeconds * 1e3 / n, "server": at.CPUSeconds * 1e3 / n, "allocs": float64(r.Usage.Allocs) / n,
	}
}

// streamUp is how long a candidate with CRI events gets until it relies on its
// event stream and has made the list after that.
const streamUp = 2 * time.Second

// eventful measures what CRI events change: the delay of an event, and the cost
// of a node without changes.
func eventful() []Scenario {
	all := candidates(oneWidth + " events-16")
	return []Scenario{
		{
			Name:       changes10,
			Title:      "110 pods x 2, 10 containers replaced a second for 10 s, node latency",
			Candidates: append(slices.Clone(all), kubeletEvents, dropInEvents), InQuick: true,
			Measure: inLab(relistPeriod, callTimeout, false, churn{pods: 110, rate: 10, seconds: 10}.measure),
		},
		{
			Name:       "events/idle/seconds=10",
			Title:      "one minute of 110 unchanged pods x 2, measured for 10 s",
			Candidates: all, Measure: inLab(relistPeriod, callTimeout, false, quiet), InQuick: true,
		},
	}
}

const quietSpan = 10 * time.Second

// quiet is a node on which nothing changes for a time.
func quiet(ctx context.Context, l *lab) Metrics {
	l.populate(ctx, 110, 2)
	l.command(control.Command{Do: control.ClientExpect})
	l.node.Reset()
	l.pause(ctx, quietSpan)
	m, err := quietMetrics(l.candidate, l.command(control.Command{Do: control.ClientReport}), l.node.Stats())
	l.fail(err)
	return m
}

// quietMetrics are those of a minute. It returns an error unless the candidate made a list
// each period, or fewer than half of them with CRI events: the pipeline lists at
// growing intervals while its event stream announces every change.
func quietMetrics(c Candidate, r control.Report, at node.Stats) (Metrics, error) {
	lists, half := at.RPCs["ListContainers"].Calls, int64(quietSpan/relistPeriod/2)
	if len(r.Seen) > 0 || at.StatusCalls() > 0 || c.events() != (lists < half) {
		return nil, fmt.Errorf("wrong work: events %v, %d status calls and %d lists on an idle node in %v", r.Seen, at.StatusCalls(), lists, quietSpan)
	}
	return idleMetrics(r, at, r.Usage.WallSeconds/60), nil
}

func churns() []Scenario {
	var all []Scenario
	for _, rate := range []float64{10, 30, 100} {
		w := churn{pods: 500, rate: rate, seconds: 15}
		s := Scenario{
			Name:       fmt.Sprintf("churn/rate=%.0f/seconds=%.0f", w.rate, w.seconds),
			Title:      fmt.Sprintf("500 pods x 2, %.0f containers replaced a second for %.0f s, node latency", w.rate, w.seconds),
			Candidates: candidates(oneWidth), Measure: inLab(relistPeriod, callTimeout, false, w.measure), InQuick: rate == 30,
		}
		if w.rate > 30 {
			// With one call at a time the relists take longer and longer, until a
			// container starts and ends between two of them and is never seen.
			s.Candidates = candidates("pipeline-16 pipeline-32")
		}
		all = append(all, s)
	}
	return all
}

// churn is containers that are replaced one after the other.
type churn struct {
	pods          int
	rate, seconds float64
}

func (w churn) measure(ctx context.Context, l *lab) Metrics {
	l.populate(ctx, w.pods, 2)
	l.fail(l.node.Shape("node", 0))
	n := int(w.rate * w.seconds)
	var made []control.Arrival
	r := l.window(map[string]int{"ContainerStarted": n, "ContainerDied": n, "ContainerRemoved": n}, func() {
		if l.err == nil {
			made, l.err = l.node.Churn(ctx, w.rate, n)
		}
	})
	m := l.burstMetrics(r, l.node.Stats(), n)
	delays := delays(made, r.Log)
	m["p50"], m["p99"] = percentile(delays, 50), percentile(delays, 99)
	delete(m, "last")
	delete(m, "limit")
	return m
}

// delays returns the sorted times in milliseconds from each change to its event.
func delays(changes, events []control.Arrival) []float64 {
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
	slices.Sort(out)
	return out
}

// percentile of sorted values by the nearest rank; 0 without values.
func percentile(sorted []float64, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, (len(sorted)*p+99)/100-1)]
}
