package main

import (
	"fmt"
	"strings"
)

// figure names a median: a metric of a candidate in a scenario.
type figure struct {
	scenario  string
	candidate Candidate
	metric    string
}

// target is a figure to reach: at most a share of another figure.
type target struct {
	what              string
	measured, against figure
	most              float64
}

// beside compares two candidates in one scenario.
func beside(what, scenario, metric string, of, against Candidate, most float64) target {
	return target{what, figure{scenario, of, metric}, figure{scenario, against, metric}, most}
}

// targets are the figures that the pipeline must reach.
var targets = []target{
	beside("burst of 110 pods, node latency: time", burst110, "last", "pipeline-16", kubelet, 0.06),
	{"the same: time against its limit", figure{burst110, "pipeline-16", "last"}, figure{burst110, "pipeline-16", "limit"}, 1.1},
	beside("burst of 110 pods of one container: time", burstOfOne, "last", "pipeline-16", kubelet, 0.05),
	beside("110 pods whose sandbox statuses carry container statuses: time", carriedBurst, "last", "pipeline-16", kubelet, 0.03),
	beside("burst of 1000 pods, no latency: time", burst1000, "last", "pipeline-16", kubelet, 0.35),
	beside("the same: client CPU", burst1000, "client", "pipeline-16", kubelet, 0.5),
	beside("the same, runtime serves 8 calls at once: time", limitedZero, "last", "pipeline-32", "pipeline-8", 1.05),
	beside("110 pods, node latency, 8 calls at once: time", limited(8), "last", "pipeline-32", "pipeline-8", 1.05),
	beside("110 pods, node latency, 1 call at once: time", limited(1), "last", "pipeline-16", kubelet, 1.1),
	beside("the same: status calls", limited(1), "calls", "pipeline-16", kubelet, 1.1),
	beside("110 pods, node latency, 2 calls at once: time", limited(2), "last", "pipeline-16", kubelet, 1.1),
	beside("110 pods, node latency, 4 calls at once: time", limited(4), "last", "pipeline-16", kubelet, 1.1),
	beside("idle relist, 110 pods: client CPU", "idle/pods=110", "client", "pipeline-16", kubelet, 0.3),
	beside("the same: allocations", "idle/pods=110", "allocs", "pipeline-16", kubelet, 0.1),
	beside("idle relist, 1000 pods: client CPU", "idle/pods=1000", "client", "pipeline-16", kubelet, 0.16),
	beside("the same: allocations", "idle/pods=1000", "allocs", "pipeline-16", kubelet, 0.1),
	beside("idle relist, 5000 pods: client CPU", "idle/pods=5000", "client", "pipeline-16", kubelet, 0.12),
	beside("the same: allocations", "idle/pods=5000", "allocs", "pipeline-16", kubelet, 0.1),
	{"third restart: status calls", figure{"restart/n=3", "pipeline-16", "calls"}, figure{"restart/n=1", kubelet, "calls"}, 1},
	{"1 pod of 110 with hung calls: time of the others", figure{"hung/pods=1", "pipeline-16", "last"}, figure{"hung/pods=0", "pipeline-16", "last"}, 1.2},
	{"5 pods with hung calls: time of the others", figure{"hung/pods=5", "pipeline-8", "last"}, figure{"hung/pods=0", "pipeline-8", "last"}, 1.2},
	beside("the same", "hung/pods=5", "last", "pipeline-8", kubelet, 1./12),
	beside("change to event with CRI events: p50", changes10, "p50", "events-16", kubelet, 0.1),
	beside("idle minute with CRI events: client CPU", quiet10, "client", "events-16", "pipeline-16", 0.25),
	beside("cold start, 2000 exited containers: time", coldStart, "last", "pipeline-16", kubelet, 0.1),
	{"the same: running pods against all", figure{coldStart, "pipeline-16", "running"}, figure{coldStart, "pipeline-16", "last"}, 0.5},
}

// ratio returns the figure divided by its reference, and false if one of them
// was not measured.
func (t target) ratio(r *Results) (float64, bool) {
	value, ok := r.figure(t.measured.scenario, t.measured.candidate, t.measured.metric)
	base, have := r.figure(t.against.scenario, t.against.candidate, t.against.metric)
	return value.median() / base.median(), ok && have && base.median() != 0
}

// names says which two figures are compared.
func (t target) names() string {
	measured, against := t.measured, t.against
	names := string(measured.candidate + " / " + against.candidate)
	switch {
	case against.scenario != measured.scenario:
		names += ", " + against.scenario
	case against.metric != measured.metric:
		names += ", " + against.metric
	}
	return names
}

// command measures the target, as an argument of make -C bench.
func (t target) command() string {
	return "some SCENARIO=" + t.measured.scenario
}

func targetTable(r *Results) string {
	var b strings.Builder
	b.WriteString("| figure | ratio | target | reached | `make -C bench ...` |\n|---|---|---:|---:|---|\n")
	for i, t := range targets {
		command := "`" + t.command() + "`"
		if i > 0 && t.command() == targets[i-1].command() {
			command = "" // the same
		}
		reached := "not measured"
		if ratio, ok := t.ratio(r); ok && ratio > t.most {
			reached = fmt.Sprintf("**%.3g, missed**", ratio)
		} else if ok {
			reached = fmt.Sprintf("%.3g", ratio)
		}
		fmt.Fprintf(&b, "| %s | %s | %.3g | %s | %s |\n", t.what, t.names(), t.most, reached, command)
	}
	return b.String()
}
