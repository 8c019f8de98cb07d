package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// pagePlots are the plots of the page, in its order.
var pagePlots = []string{
	"burst-node.svg", "hung.svg", "idle-cpu.svg", "limited-calls.svg", "restart.svg", "fanout.svg",
}

// plots are all plots except that of the fan-out. Those with candidates compare
// scenarios by the last number in their names, the others show one scenario by the
// number of inspectors.
var plots = []struct {
	chart
	scenario, metric string
	candidates       string
}{
	{lastEvent("burst-node", "All containers exit, node latency"), "burst/profile=node/containers=2/", "last", someWidths},
	{lastEvent("burst-zero", "All containers exit, zero latency"), "burst/profile=zero/containers=2/", "last", someWidths},
	{lastEvent("burst-tail", "All containers exit, tail latency"), "burst/profile=tail/containers=2/", "last", someWidths},
	{lastEvent("burst-width", "110 pods, node latency"), "burst/profile=node/containers=2/pods=110", "last", ""},
	{
		chart{file: "burst-cpu", title: "1000 pods, no latency: client CPU", y: "CPU time (ms)", logX: true},
		"burst/profile=zero/containers=2/pods=1000", "client", "",
	},
	{lastEvent("limited-node", "110 pods, runtime serves 8 calls at once"), "limited/profile=node/pods=110/limit=8", "last", ""},
	{lastEvent("limited-zero", "1000 pods, runtime serves 8 calls at once"), "limited/profile=zero/pods=1000/limit=8", "last", ""},
	{
		chart{file: "limited-calls", title: "110 pods, node latency, a limited runtime", x: "calls that the runtime serves at once", y: "last event after (ms)", logX: true, logY: true},
		"limited/profile=node/pods=110/", "last", "kubelet pipeline-8 pipeline-16",
	},
	{width("limited-width", "Width found, runtime serves 8 calls"), "limited/profile=node/pods=110/limit=8", "width", ""},
	{
		chart{file: "hung", title: "110 pods change, some calls hang", x: "pods whose status calls hang", y: "last event of the others (ms)", logY: true},
		"hung/", "last", twoWidths,
	},
	{lastEvent("storm", "Cold start, node latency"), "storm/profile=node", "last", ""},
	{
		chart{file: "restart", title: "Containers restart, dead ones stay", x: "restarts of each container", y: "status calls per changed pod"},
		"restart/", "calls", oneWidth,
	},
	{
		chart{file: "idle-cpu", title: "Relist without a change: client CPU", x: "pods on the node", y: "CPU time per relist (ms)", logX: true, logY: true},
		"idle/", "client", oneWidth,
	},
	{
		chart{file: "idle-allocs", title: "Relist without a change: allocations", x: "pods on the node", y: "allocations per relist", logX: true, logY: true},
		"idle/", "allocs", oneWidth,
	},
	{lastEvent("containerd-time", "50 pods on containerd"), "containerd/pods=50", "last", ""},
	{chart{file: "containerd-cpu", title: "50 pods: CPU of containerd", y: "CPU time (ms)", logX: true}, "containerd/pods=50", "server", ""},
	{width("containerd-width", "Width found on containerd"), "containerd/pods=50", "width", ""},
}

const someWidths = "serial kubelet pipeline-4 pipeline-8 pipeline-16 pipeline-32"

func lastEvent(file, title string) chart {
	return chart{file: file, title: title, x: "pods of 2 containers", y: "last event after (ms)", logX: true, logY: true}
}

func width(file, title string) chart {
	return chart{file: file, title: title, y: "pods inspected at once", logX: true, logY: true}
}

// charts returns every plot that the results have the points for.
func charts(r *Results) []chart {
	all := []chart{fanOutChart(r.Steps)}
	for _, p := range plots {
		c := p.chart
		c.file += ".svg"
		c.group, _, _ = strings.Cut(p.scenario, "/")
		if p.candidates == "" {
			c.x, c.series = "inspectors", byWidth(r.outcome(p.scenario), p.metric)
		} else {
			c.series = bySize(r, p.scenario, p.metric, candidates(p.candidates))
		}
		all = append(all, c)
	}
	return slices.DeleteFunc(all, func(c chart) bool { return !c.worthwhile() })
}

// worthwhile is false for a chart in which no line has two points.
func (c chart) worthwhile() bool {
	return slices.ContainsFunc(c.series, func(s series) bool { return len(s.points) > 1 && !s.dashed })
}

// pointOf is a candidate's figure at x.
func pointOf(x float64, f *Figure) point { return point{x: x, y: f.Median, low: f.Min, high: f.Max} }

// byWidth is a metric of one scenario against the number of inspectors. Candidates
// without inspectors are level lines; the time to the last event has its limit.
func byWidth(o *Outcome, metric string) []series {
	if o == nil {
		return nil
	}
	found, fixed := series{name: "pipeline"}, series{name: "pipeline, fixed width"}
	limit := series{name: "limit", dashed: true}
	var all []series
	for _, row := range o.Rows {
		f, n := row.Metrics[metric], float64(row.Candidate.inspectors())
		switch {
		case f == nil:
		case n == 0:
			all = append(all, series{name: string(row.Candidate), dashed: true, points: []point{pointOf(0, f)}})
		case row.Candidate.fixed():
			fixed.points = append(fixed.points, pointOf(n, f))
		default:
			found.points = append(found.points, pointOf(n, f))
			if l := row.Metrics["limit"]; l != nil && metric == "last" {
				limit.points = append(limit.points, pointOf(n, l))
			}
		}
	}
	for i, level := range all {
		all[i].points = slices.Clone(found.points)
		for n := range all[i].points {
			all[i].points[n].y, all[i].points[n].low = level.points[0].y, level.points[0].low
		}
	}
	return slices.DeleteFunc(append(all, found, fixed, limit), func(s series) bool { return len(s.points) == 0 })
}

// bySize is a metric of the scenarios with a prefix against the last number in
// their names.
func bySize(r *Results, prefix, metric string, candidates []Candidate) []series {
	var all []series
	for _, candidate := range candidates {
		s := series{name: string(candidate)}
		for _, o := range r.Scenarios {
			if f := o.figure(candidate, metric); f != nil && strings.HasPrefix(o.Name, prefix) {
				s.points = append(s.points, pointOf(lastNumber(o.Name), f))
			}
		}
		slices.SortFunc(s.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
		if len(s.points) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// lastNumber of "idle/pods=110" is 110.
func lastNumber(name string) float64 {
	v, _ := strconv.ParseFloat(name[strings.LastIndexByte(name, '=')+1:], 64)
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
