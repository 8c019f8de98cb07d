package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

func idles() []Scenario {
	var all []Scenario
	for _, pods := range []int{110, 1000, 5000} {
		all = append(all, Scenario{
			Name:       fmt.Sprintf("idle/pods=%d", pods),
			Title:      fmt.Sprintf("one relist of %d unchanged pods x 2", pods),
			Candidates: candidates(oneWidth), InQuick: true,
			Measure: inLab(idlePeriod, callTimeout, idle{pods: pods, containers: 2, relists: 40}.measure),
		})
	}
	return all
}

// idle is a number of relists in which nothing changes.
type idle struct{ pods, containers, relists int }

// idlePeriod is shorter than the kubelet's second, to measure relists and not the
// time between them.
const idlePeriod = 50 * time.Millisecond

func (w idle) measure(ctx context.Context, l *lab) Metrics {
	l.populate(ctx, w.pods, w.containers)
	l.command(control.Command{Do: control.ClientExpect})
	began := time.Now()
	at := l.order(control.Order{Do: control.NodeReset})
	for l.err == nil && at.RPCs["ListContainers"].Calls < int64(w.relists) {
		if time.Since(began) > longest {
			l.fail(fmt.Errorf("%d relists in %v, want %d", at.RPCs["ListContainers"].Calls, longest, w.relists))
		}
		l.pause(ctx, idlePeriod)
		at = l.order(control.Order{Do: control.NodeStats})
	}
	r := l.command(control.Command{Do: control.ClientReport})
	if len(r.Seen) > 0 || statusCalls(at) > 0 {
		l.fail(fmt.Errorf("wrong work: events %v and %d status calls on an idle node", r.Seen, statusCalls(at)))
	}
	n := float64(at.RPCs["ListContainers"].Calls)
	m := idleMetrics(r, at, n)
	m["wall"] = r.Usage.WallSeconds*1e3/n - float64(idlePeriod.Milliseconds())
	return m
}

// idleMetrics is the cost of a window without a change, divided by n.
func idleMetrics(r control.Report, at control.Answer, n float64) Metrics {
	return Metrics{
		"client": r.Usage.CPUSeconds * 1e3 / n, "server": at.CPUSeconds * 1e3 / n,
		"allocs": float64(r.Usage.Allocs) / n, "bytes": float64(r.Usage.AllocBytes) / 1024 / n,
		"rss": float64(r.Usage.RSSBytes) / (1 << 20),
	}
}

// streamUp is how long a candidate with CRI events gets until it relies on its
// event stream and has made the list after that.
const streamUp = 2 * time.Second

// earned is how long a pipeline with CRI events needs until its relist period has grown
// from 1 s to the 10 s that a stream gets before its first event.
const earned = 20 * time.Second

// eventful measures what CRI events change: the delay of an event, and the cost
// of a node without changes.
func eventful() []Scenario {
	all := candidates(oneWidth + " events-16")
	late := churn{pods: 110, containers: 2, rate: 10, seconds: 10}
	quiet := quiet{pods: 110, containers: 2, span: 10 * time.Second}
	return []Scenario{
		{
			Name:       "events/change/seconds=10",
			Title:      "110 pods x 2, 10 containers replaced a second for 10 s, node latency",
			Candidates: append(slices.Clone(all), kubeletEvents, dropInEvents), Measure: inLab(relistPeriod, callTimeout, late.measure), InQuick: true,
		},
		{
			Name:       "events/idle/seconds=10",
			Title:      "one minute of 110 unchanged pods x 2, measured for 10 s",
			Candidates: all, Measure: inLab(relistPeriod, callTimeout, quiet.measure), InQuick: true,
		},
	}
}

// quiet is a node on which nothing changes for a time.
type quiet struct {
	pods, containers int
	span             time.Duration
}

func (w quiet) measure(ctx context.Context, l *lab) Metrics {
	l.populate(ctx, w.pods, w.containers)
	if l.candidate.events() {
		l.pause(ctx, earned)
	}
	l.command(control.Command{Do: control.ClientExpect})
	l.order(control.Order{Do: control.NodeReset})
	l.pause(ctx, w.span)
	at := l.order(control.Order{Do: control.NodeStats})
	m, err := w.metrics(l.candidate, l.command(control.Command{Do: control.ClientReport}), at)
	l.fail(err)
	return m
}

// metrics are those of a minute. It returns an error unless the candidate made a list
// each period, or fewer than half of them with CRI events: the pipeline lists at
// growing intervals while its event stream announces every change.
func (w quiet) metrics(c Candidate, r control.Report, at control.Answer) (Metrics, error) {
	lists, half := at.RPCs["ListContainers"].Calls, int64(w.span/relistPeriod/2)
	if len(r.Seen) > 0 || statusCalls(at) > 0 || c.events() != (lists < half) {
		return nil, fmt.Errorf("wrong work: events %v, %d status calls and %d lists on an idle node in %v", r.Seen, statusCalls(at), lists, w.span)
	}
	return idleMetrics(r, at, r.Usage.WallSeconds/60), nil
}

func churns() []Scenario {
	var all []Scenario
	for _, w := range []churn{{rate: 10, seconds: 15}, {rate: 30, seconds: 15}, {rate: 100, seconds: 15}, {rate: 20, seconds: 120}} {
		w.pods, w.containers = 500, 2
		s := Scenario{
			Name:       fmt.Sprintf("churn/rate=%.0f/seconds=%.0f", w.rate, w.seconds),
			Title:      fmt.Sprintf("500 pods x 2, %.0f containers replaced a second for %.0f s, node latency", w.rate, w.seconds),
			Candidates: candidates(oneWidth), Measure: inLab(relistPeriod, callTimeout, w.measure),
			InQuick: w.rate == 30, SideBySide: w.seconds > 15,
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
	pods, containers int
	rate, seconds    float64
}

func (w churn) measure(ctx context.Context, l *lab) Metrics {
	l.populate(ctx, w.pods, w.containers)
	l.order(control.Order{Do: control.NodeShape, Profile: "node"})
	n := int(w.rate * w.seconds)
	var made control.Answer
	r := l.window(map[string]int{"ContainerStarted": n, "ContainerDied": n, "ContainerRemoved": n}, true, func() {
		made = l.order(control.Order{Do: control.NodeChurn, Rate: w.rate, Seconds: w.seconds})
	})
	m := l.burstMetrics(r, n)
	m.remove("first", "last", "limit", "ratio")
	delays := delays(made.Log, r.Log)
	m["p50"], m["p99"] = percentile(delays, 50), percentile(delays, 99)
	m["rate"] = float64(3*n) / r.Usage.WallSeconds
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
