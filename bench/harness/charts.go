package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// charts returns every plot that the results have the points for.
func charts(r *Results) []chart {
	var all []chart
	for _, o := range r.Scenarios {
		if slices.Contains([]string{"burst", "limited", "containerd"}, o.Group) {
			all = append(all, widthChart(o), loadChart(o))
		}
		if slices.Contains([]string{"limited", "containerd"}, o.Group) {
			all = append(all, foundChart(o))
		}
	}
	all = append(all,
		sizeChart(r, "idle", "idle-cpu.svg", "Idle relist: CPU time of the client", "client", "client CPU per relist (ms)"),
		sizeChart(r, "idle", "idle-allocs.svg", "Idle relist: allocations of the client", "allocs", "allocations per relist"),
		sizeChart(r, "hung", "hung.svg", "Hung pods among 110 that change", "last", "last event of the others (ms)"),
		sizeChart(r, "restart", "restart.svg", "Containers that restart for the n-th time", "calls", "status calls per changed pod"),
		fanOutChart(r.Steps))
	for _, containers := range []int{1, 2, 5} {
		for _, profile := range []string{"node", "zero", "tail"} {
			all = append(all, podsChart(r, profile, containers))
		}
	}
	return slices.DeleteFunc(all, func(c chart) bool { return !c.worthwhile() })
}

// worthwhile is false for a chart without two points in a row.
func (c chart) worthwhile() bool {
	return slices.ContainsFunc(c.series, func(s series) bool { return len(s.points) > 1 })
}

func fileName(scenario, what string) string {
	return strings.NewReplacer("/", "-", "=", "").Replace(scenario) + "-" + what + ".svg"
}

// pointOf is a candidate's figure at x.
func pointOf(x float64, f *Figure) point {
	return point{x: x, y: f.Median, low: f.Min, high: f.Max}
}

// widthChart shows the time to the last event against the number of inspectors,
// between the baselines and the limit.
func widthChart(o *Outcome) chart {
	c := chart{
		of: o.Name, file: fileName(o.Name, "time"), title: o.Title, logX: true, logY: true, falling: true,
		x: "inspectors", y: "last event after (ms)", xTicks: inspectorTicks(),
	}
	times, fixed := series{name: "pipeline"}, series{name: "pipeline, fixed width"}
	limits := series{name: "limit", dashed: true}
	for _, row := range o.Rows {
		last, limit := row.Metrics["last"], row.Metrics["limit"]
		n := row.Candidate.inspectors()
		switch {
		case last == nil:
		case n == 0:
			c.series = append(c.series, level(string(row.Candidate), last))
		case row.Candidate.fixed():
			fixed.points = append(fixed.points, pointOf(float64(n), last))
		default:
			times.points = append(times.points, pointOf(float64(n), last))
			if limit != nil {
				limits.points = append(limits.points, pointOf(float64(n), limit))
			}
		}
	}
	c.series = append([]series{times, fixed, limits}, c.series...)
	return c
}

// loadChart shows what the same work costs on both sides.
func loadChart(o *Outcome) chart {
	c := chart{
		of: o.Name, file: fileName(o.Name, "cpu"), title: o.Title, logX: true,
		x: "inspectors", y: "CPU time (ms)", xTicks: inspectorTicks(), falling: true,
	}
	for _, side := range []string{"client", "server"} {
		s := series{name: "pipeline, " + side}
		for _, row := range o.Rows {
			f := row.Metrics[side]
			if f == nil || row.Candidate.fixed() {
				continue
			}
			if n := row.Candidate.inspectors(); n > 0 {
				s.points = append(s.points, pointOf(float64(n), f))
			} else {
				c.series = append(c.series, level(fmt.Sprintf("%s, %s", row.Candidate, side), f))
			}
		}
		c.series = append(c.series, s)
	}
	return c
}

// foundChart shows the width that the pipeline has in the end below each bound.
func foundChart(o *Outcome) chart {
	c := chart{
		of: o.Name, file: fileName(o.Name, "width"), title: o.Title, logX: true, logY: true,
		x: "inspectors", y: "pods inspected at once, in the end", xTicks: inspectorTicks(),
	}
	found, fixed := series{name: "pipeline"}, series{name: "pipeline, fixed width", dashed: true}
	for _, row := range o.Rows {
		f, n := row.Metrics["width"], float64(row.Candidate.inspectors())
		switch {
		case f == nil:
		case row.Candidate.fixed():
			fixed.points = append(fixed.points, pointOf(n, f))
		default:
			found.points = append(found.points, pointOf(n, f))
		}
	}
	c.series = []series{found, fixed}
	return c
}

func inspectorTicks() []float64 {
	var at []float64
	for _, w := range widths {
		at = append(at, float64(w))
	}
	return at
}

// level is the line of a candidate that has no width.
func level(name string, f *Figure) series {
	return series{name: name, dashed: true, points: []point{
		pointOf(float64(widths[0]), f), pointOf(float64(widths[len(widths)-1]), f),
	}}
}

// sizeChart shows one metric of the scenarios of a group against the last
// number in their names.
func sizeChart(r *Results, group, file, title, metric, y string) chart {
	c := chart{of: group, file: file, title: title, y: y}
	for _, o := range r.Scenarios {
		if o.Group != group {
			continue
		}
		key, x := lastParameter(o.Name)
		c.x = map[string]string{"idle": "pods on the node", "hung": "hung pods", "restart": "restarts of each container"}[group]
		c.logX, c.logY = key == "pods" && group == "idle", group != "restart"
		c.xTicks = append(c.xTicks, x)
		for _, row := range o.Rows {
			c.addPoint(string(row.Candidate), x, row.Metrics[metric])
		}
	}
	return c
}

// podsChart shows bursts of one kind against the number of pods.
func podsChart(r *Results, profile string, containers int) chart {
	prefix := fmt.Sprintf("burst/profile=%s/containers=%d/", profile, containers)
	c := chart{
		of: "burst", file: fileName(strings.TrimSuffix(prefix, "/"), "pods"), logX: true, logY: true,
		title: fmt.Sprintf("All containers of pods x %d exit at once, %s latency", containers, profile),
		x:     "pods that change", y: "last event after (ms)",
	}
	for _, o := range r.Scenarios {
		if !strings.HasPrefix(o.Name, prefix) {
			continue
		}
		_, x := lastParameter(o.Name)
		c.xTicks = append(c.xTicks, x)
		for _, row := range o.Rows {
			c.addPoint(string(row.Candidate), x, row.Metrics["last"])
		}
	}
	return c
}

func (c *chart) addPoint(name string, x float64, f *Figure) {
	if f == nil {
		return
	}
	i := slices.IndexFunc(c.series, func(s series) bool { return s.name == name })
	if i < 0 {
		c.series, i = append(c.series, series{name: name}), len(c.series)
	}
	c.series[i].points = append(c.series[i].points, pointOf(x, f))
}

// lastParameter of "idle/pods=110" is pods and 110.
func lastParameter(name string) (string, float64) {
	key, value, _ := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], "=")
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return key, 0
	}
	return key, v
}

func fanOutChart(steps []Step) chart {
	c := chart{
		of: "steps", file: "fanout.svg", title: "Fan-out to subscribers that read, and 10 that never do",
		x: "subscribers", y: "ns per event and subscriber", logX: true, logY: true,
	}
	for _, s := range steps {
		f := s.Metrics["ns/event-subscriber"]
		if f == nil {
			continue
		}
		name := s.parameter("impl")
		if s.parameter("stalled") != "0" {
			name += ", 10 never read"
		}
		x, err := strconv.ParseFloat(s.parameter("subscribers"), 64)
		if err != nil {
			continue
		}
		if !slices.Contains(c.xTicks, x) {
			c.xTicks = append(c.xTicks, x)
		}
		c.addPoint(name, x, f)
	}
	return c
}
