package main

import (
	"fmt"
	"strings"
)

// target is a figure to reach: a metric of one candidate in one scenario, at
// most so many times that of a reference.
type target struct {
	what     string
	scenario string
	of       Candidate
	metric   string
	// against and its metric are the reference; the same scenario if
	// reference is empty.
	reference     string
	against       Candidate
	againstMetric string
	most          float64
}

// targets are what the pipeline is held to.
var targets = []target{
	{"burst of 110 pods x 2, node latency, 16 inspectors: time", "burst/profile=node/containers=2/pods=110", "pipeline-16", "last", "", kubelet, "last", 1. / 12},
	{"the same, against the limit", "burst/profile=node/containers=2/pods=110", "pipeline-16", "last", "", "pipeline-16", "limit", 1.15},
	{"burst of 1000 pods x 2, no latency: time", "burst/profile=zero/containers=2/pods=1000", "pipeline-16", "last", "", kubelet, "last", 0.35},
	{"the same: client CPU", "burst/profile=zero/containers=2/pods=1000", "pipeline-16", "client", "", kubelet, "client", 0.5},
	{"the same, a runtime of 8 calls at once, 32 inspectors: time against 8", "limited/profile=zero/pods=1000/limit=8", "pipeline-32", "last", "", "pipeline-8", "last", 1.05},
	{"110 pods x 2, node latency, a runtime of 8 calls at once, 32 inspectors: time against 8", "limited/profile=node/pods=110/limit=8", "pipeline-32", "last", "", "pipeline-8", "last", 1.05},
	{"idle relist, 110 pods x 2: client CPU", "idle/pods=110", "pipeline-16", "client", "", kubelet, "client", 0.35},
	{"the same: allocations", "idle/pods=110", "pipeline-16", "allocs", "", kubelet, "allocs", 0.1},
	{"idle relist, 1000 pods x 2: client CPU", "idle/pods=1000", "pipeline-16", "client", "", kubelet, "client", 0.35},
	{"the same: allocations", "idle/pods=1000", "pipeline-16", "allocs", "", kubelet, "allocs", 0.1},
	{"idle relist, 5000 pods x 2: client CPU", "idle/pods=5000", "pipeline-16", "client", "", kubelet, "client", 0.35},
	{"the same: allocations", "idle/pods=5000", "pipeline-16", "allocs", "", kubelet, "allocs", 0.1},
	{"both containers restart for the third time: status calls, against 5", "restart/n=3", "pipeline-16", "calls", "restart/n=1", kubelet, "calls", 1},
	{"1 hung pod of 110: the others' time, against none", "hung/pods=1", "pipeline-16", "last", "hung/pods=0", "pipeline-16", "last", 1.2},
	{"5 hung pods of 110, 8 inspectors: the others' time, against none", "hung/pods=5", "pipeline-8", "last", "hung/pods=0", "pipeline-8", "last", 1.2},
	{"the same", "hung/pods=5", "pipeline-8", "last", "", kubelet, "last", 1. / 12},
	{"change to event with events, 110 pods x 2, node latency: p50", "events/change/seconds=10", "events-16", "p50", "", kubelet, "p50", 0.1},
	{"a minute of 110 idle pods x 2 with events: client CPU, against relisting", "events/idle/seconds=10", "events-16", "client", "", "pipeline-16", "client", 0.25},
	{"cold start with 2000 exited containers, node latency: time", "storm/profile=node", "pipeline-16", "last", "", kubelet, "last", 0.1},
	{"the same: running pods' last event, against the whole", "storm/profile=node", "pipeline-16", "running", "", "pipeline-16", "last", 0.5},
}

// ratio returns how often the reference goes into the figure, and false if one
// of them was not measured.
func (t target) ratio(r *Results) (float64, bool) {
	measured, against := r.outcome(t.scenario), r.outcome(t.scenario)
	if t.reference != "" {
		against = r.outcome(t.reference)
	}
	if measured == nil || against == nil {
		return 0, false
	}
	value, ok := measured.median(t.of, t.metric)
	base, have := against.median(t.against, t.againstMetric)
	return value / base, ok && have && base != 0
}

func targetTable(r *Results) string {
	var b strings.Builder
	b.WriteString("| figure | against | ratio | to reach | |\n|---|---|---:|---:|---|\n")
	for _, t := range targets {
		ratio, ok := t.ratio(r)
		if !ok {
			fmt.Fprintf(&b, "| %s | %s | | %s | not measured |\n", t.what, t.against, number(t.most))
			continue
		}
		verdict := "reached"
		if ratio > t.most {
			verdict = "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %.3g | %.3g | %s |\n", t.what, t.against, ratio, t.most, verdict)
	}
	for _, s := range stepTargets {
		b.WriteString(s.row(r.Steps))
	}
	return b.String()
}

// stepTarget is a figure to reach in a Go benchmark.
type stepTarget struct {
	what, step, against, unit string
	most                      float64
}

var stepTargets = []stepTarget{
	{
		"relist of 1000 unchanged pods x 3 in memory: ns per pod",
		"Relist/impl=pipeline/pods=1000/listed=again", "Relist/impl=kubelet/pods=1000/listed=again", "ns/pod", 0.2,
	},
	{
		"1000 subscribers, 10 never read: ns per event and subscriber",
		"FanOut/impl=dispatcher/subscribers=1000/stalled=10", "FanOut/impl=broadcaster-drop/subscribers=1000/stalled=10", "ns/event-subscriber", 1,
	},
	{
		"1000 subscribers that all read: ns per event and subscriber",
		"FanOut/impl=dispatcher/subscribers=1000/stalled=0", "FanOut/impl=broadcaster-wait/subscribers=1000/stalled=0", "ns/event-subscriber", 1,
	},
}

func (t stepTarget) row(steps []Step) string {
	value, base := find(steps, t.step, t.unit), find(steps, t.against, t.unit)
	if value == nil || base == nil || base.Median == 0 {
		return fmt.Sprintf("| %s | %s | | %.3g | not measured |\n", t.what, t.against, t.most)
	}
	ratio, verdict := value.Median/base.Median, "reached"
	if ratio > t.most {
		verdict = "**missed**"
	}
	return fmt.Sprintf("| %s | %s | %.3g | %.3g | %s |\n", t.what, t.against, ratio, t.most, verdict)
}

func find(steps []Step, name, unit string) *Figure {
	for _, s := range steps {
		if s.Name == name {
			return s.Metrics[unit]
		}
	}
	return nil
}
