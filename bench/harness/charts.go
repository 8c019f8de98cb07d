package main

import (
	"slices"
	"strconv"
	"strings"
)

// pagePlots are the plots of the page, in its order.
var pagePlots = []string{
	"burst-node.svg", "hung.svg", "idle-cpu.svg", "limited-node.svg", "restart.svg", "fanout.svg",
}

// charts returns every plot that the results have the points for.
func charts(r *Results) []chart {
	const inspectors, lastEvent = "inspectors", "last event after (ms)"
	all := slices.Concat(burstCharts(r), []chart{
		byWidth(r, chart{
			file: "limited-node.svg", group: "limited", title: "110 pods, runtime serves 8 calls at once",
			x: inspectors, y: lastEvent, logX: true, logY: true,
		}, "limited/profile=node/pods=110/limit=8", "last"),
		byWidth(r, chart{
			file: "limited-zero.svg", group: "limited", title: "1000 pods, runtime serves 8 calls at once",
			x: inspectors, y: lastEvent, logX: true, logY: true,
		}, "limited/profile=zero/pods=1000/limit=8", "last"),
		byWidth(r, chart{
			file: "limited-width.svg", group: "limited", title: "Width found, runtime serves 8 calls",
			x: inspectors, y: "pods inspected at once", logX: true, logY: true,
		}, "limited/profile=node/pods=110/limit=8", "width"),
		bySize(r, chart{
			file: "hung.svg", group: "hung", title: "110 pods change, some calls hang",
			x: "pods whose status calls hang", y: "last event of the others (ms)", logY: true,
		}, "hung/", "last", serial, kubelet, pipelineOf(8), pipelineOf(16)),
		byWidth(r, chart{
			file: "storm.svg", group: "storm", title: "Cold start, node latency",
			x: inspectors, y: lastEvent, logX: true, logY: true,
		}, "storm/profile=node", "last"),
		bySize(r, chart{
			file: "restart.svg", group: "restart", title: "Containers restart, dead ones stay",
			x: "restarts of each container", y: "status calls per changed pod",
		}, "restart/", "calls", serial, kubelet, pipelineOf(16)),
		bySize(r, chart{
			file: "idle-cpu.svg", group: "idle", title: "Relist without a change: client CPU",
			x: "pods on the node", y: "CPU time per relist (ms)", logX: true, logY: true,
		}, "idle/", "client", serial, kubelet, pipelineOf(16)),
		bySize(r, chart{
			file: "idle-allocs.svg", group: "idle", title: "Relist without a change: allocations",
			x: "pods on the node", y: "allocations per relist", logX: true, logY: true,
		}, "idle/", "allocs", serial, kubelet, pipelineOf(16)),
	}, containerdCharts(r), []chart{fanOutChart(r.Steps)})
	return slices.DeleteFunc(all, func(c chart) bool { return !c.worthwhile() })
}

func burstCharts(r *Results) []chart {
	var all []chart
	for _, profile := range []string{"node", "zero", "tail"} {
		all = append(all, bySize(r, chart{
			file: "burst-" + profile + ".svg", group: "burst", title: "All containers exit, " + profile + " latency",
			x: "pods of 2 containers", y: "last event after (ms)", logX: true, logY: true,
		}, "burst/profile="+profile+"/containers=2/", "last",
			serial, kubelet, pipelineOf(4), pipelineOf(8), pipelineOf(16), pipelineOf(32)))
	}
	return append(all,
		byWidth(r, chart{
			file: "burst-width.svg", group: "burst", title: "110 pods, node latency",
			x: "inspectors", y: "last event after (ms)", logX: true, logY: true,
		}, "burst/profile=node/containers=2/pods=110", "last"),
		byWidth(r, chart{
			file: "burst-cpu.svg", group: "burst", title: "1000 pods, no latency: client CPU",
			x: "inspectors", y: "CPU time (ms)", logX: true,
		}, "burst/profile=zero/containers=2/pods=1000", "client"))
}

func containerdCharts(r *Results) []chart {
	var all []chart
	for _, c := range []struct{ file, metric, title, y string }{
		{"containerd-time.svg", "last", "50 pods on containerd", "last event after (ms)"},
		{"containerd-cpu.svg", "server", "50 pods: CPU of containerd", "CPU time (ms)"},
		{"containerd-width.svg", "width", "Width found on containerd", "pods inspected at once"},
	} {
		all = append(all, byWidth(r, chart{
			file: c.file, group: "containerd", title: c.title, x: "inspectors", y: c.y, logX: true, logY: c.metric != "server",
		}, "containerd/pods=50", c.metric))
	}
	return all
}

// worthwhile is false for a chart in which no line has two points.
func (c chart) worthwhile() bool {
	return slices.ContainsFunc(c.series, func(s series) bool { return len(s.points) > 1 && !s.dashed })
}

// pointOf is a candidate's figure at x.
func pointOf(x float64, f *Figure) point {
	return point{x: x, y: f.Median, low: f.Min, high: f.Max}
}

// byWidth draws a metric of one scenario against the number of inspectors.
// Candidates without inspectors are level lines. Of the time to the last event
// the limit is drawn too.
func byWidth(r *Results, c chart, scenario, metric string) chart {
	o := r.outcome(scenario)
	if o == nil {
		return c
	}
	found, fixed := series{name: "pipeline"}, series{name: "pipeline, fixed width"}
	limit := series{name: "limit", dashed: true}
	var levels []series
	for _, row := range o.Rows {
		f, n := row.Metrics[metric], float64(row.Candidate.inspectors())
		switch {
		case f == nil:
		case n == 0:
			levels = append(levels, series{name: string(row.Candidate), dashed: true, points: []point{pointOf(0, f)}})
		case row.Candidate.fixed():
			fixed.points = append(fixed.points, pointOf(n, f))
		default:
			found.points = append(found.points, pointOf(n, f))
			if l := row.Metrics["limit"]; l != nil && metric == "last" {
				limit.points = append(limit.points, pointOf(n, l))
			}
		}
	}
	for _, s := range levels {
		c.series = append(c.series, s.across(found))
	}
	for _, s := range []series{found, fixed, limit} {
		if len(s.points) > 0 {
			c.series = append(c.series, s)
		}
	}
	return c
}

// across draws a series of one point as a level line as wide as another series.
func (s series) across(other series) series {
	at := s.points[0]
	s.points = nil
	for _, p := range other.points {
		at.x = p.x
		s.points = append(s.points, at)
	}
	return s
}

// bySize draws a metric of the scenarios with a prefix against the last number
// in their names.
func bySize(r *Results, c chart, prefix, metric string, candidates ...Candidate) chart {
	for _, candidate := range candidates {
		s := series{name: string(candidate)}
		for _, o := range r.Scenarios {
			if !strings.HasPrefix(o.Name, prefix) {
				continue
			}
			if f := o.figure(candidate, metric); f != nil {
				s.points = append(s.points, pointOf(lastNumber(o.Name), f))
			}
		}
		if len(s.points) > 0 {
			c.series = append(c.series, s)
		}
	}
	return c
}

// lastNumber of "idle/pods=110" is 110.
func lastNumber(name string) float64 {
	v, err := strconv.ParseFloat(name[strings.LastIndexByte(name, '=')+1:], 64)
	if err != nil {
		return 0
	}
	return v
}

func fanOutChart(steps []Step) chart {
	c := chart{
		file: "fanout.svg", group: "steps", title: "Fan-out to subscribers",
		x: "subscribers", y: "ns per event and subscriber", logX: true, logY: true,
	}
	for _, s := range steps {
		f := s.Metrics["ns/event-subscriber"]
		x, err := strconv.ParseFloat(s.parameter("subscribers"), 64)
		if f == nil || err != nil {
			continue
		}
		name := s.parameter("impl")
		if s.parameter("stalled") != "0" {
			name += ", 10 stalled"
		}
		i := slices.IndexFunc(c.series, func(s series) bool { return s.name == name })
		if i < 0 {
			c.series, i = append(c.series, series{name: name}), len(c.series)
		}
		c.series[i].points = append(c.series[i].points, pointOf(x, f))
	}
	return c
}
