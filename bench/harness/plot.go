package main

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// chart is one plot.
type chart struct {
	file, title string
	x, y        string
	logX, logY  bool
	series      []series
}

type series struct {
	name   string
	points points
}

// points are as the plotter wants them: medians and their ranges.
type points []point

type point struct {
	x float64
	Figure
}

func (p points) Len() int                { return len(p) }
func (p points) XY(i int) (x, y float64) { return p[i].x, p[i].median() }
func (p points) YError(i int) (l, h float64) {
	return p[i].Figure[0] - p[i].Figure[1], p[i].Figure[2] - p[i].Figure[0]
}

// plots are the plots of the page, in its order. They compare scenarios with a prefix by
// the last number in their names.
var plots = []struct {
	chart
	prefix, metric, candidates string
}{
	{
		chart{file: "burst-node.svg", title: "All containers exit, node latency", x: "pods of 2 containers", y: "last event after (ms)", logX: true, logY: true},
		"burst/profile=node/containers=2/", "last", "serial kubelet pipeline-4 pipeline-8 pipeline-16 pipeline-32",
	},
	{
		chart{file: "hung.svg", title: "110 pods change, some calls hang", x: "pods whose status calls hang", y: "last event of the others (ms)", logY: true},
		"hung/", "last", twoWidths,
	},
	{
		chart{file: "idle-cpu.svg", title: "Relist without a change: client CPU", x: "pods on the node", y: "CPU time per relist (ms)", logX: true, logY: true},
		"idle/", "client", oneWidth,
	},
	{
		chart{file: "limited-calls.svg", title: "110 pods, node latency, a limited runtime", x: "calls that the runtime serves at once", y: "last event after (ms)", logX: true, logY: true},
		"limited/profile=node/pods=110/", "last", "kubelet pipeline-8 pipeline-16",
	},
	{
		chart{file: "restart.svg", title: "Containers restart, dead ones stay", x: "restarts of each container", y: "status calls per changed pod"},
		"restart/", "calls", oneWidth,
	},
}

// charts returns the plots that the results have the points for.
func charts(r *Results) []chart {
	var all []chart
	for _, p := range plots {
		c := p.chart
		for _, candidate := range candidates(p.candidates) {
			s := series{name: string(candidate)}
			for _, row := range r.Rows {
				f, ok := row.Metrics[p.metric]
				if ok && row.Candidate == candidate && strings.HasPrefix(row.Scenario, p.prefix) {
					x, _ := strconv.ParseFloat(row.Scenario[strings.LastIndexByte(row.Scenario, '=')+1:], 64)
					s.points = append(s.points, point{x, f})
				}
			}
			slices.SortFunc(s.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
			c.series = append(c.series, s)
		}
		all = append(all, c)
	}
	return slices.DeleteFunc(append(all, fanOutChart(r)), func(c chart) bool {
		return !slices.ContainsFunc(c.series, func(s series) bool { return len(s.points) > 1 })
	})
}

func fanOutChart(r *Results) chart {
	c := chart{
		file: "fanout.svg", title: "Fan-out to subscribers",
		x: "subscribers", y: "ns per event and subscriber", logX: true, logY: true,
	}
	for _, row := range r.Rows {
		f, ok := row.Metrics["ns/event-subscriber"]
		x, err := strconv.ParseFloat(row.parameter("subscribers"), 64)
		if !ok || err != nil {
			continue
		}
		name := row.parameter("impl")
		if row.parameter("stalled") != "0" {
			name += ", 10 stalled"
		}
		i := slices.IndexFunc(c.series, func(s series) bool { return s.name == name })
		if i < 0 {
			c.series, i = append(c.series, series{name: name}), len(c.series)
		}
		c.series[i].points = append(c.series[i].points, point{x, f})
	}
	return c
}

// The size of every plot, with the text large enough for two plots beside each other on a
// page.
const (
	plotWidth  = 6 * vg.Inch
	plotHeight = 4.6 * vg.Inch
	textSize   = vg.Length(13)
)

// palette can be told apart by colour-blind readers. No plot has more lines.
var palette = []color.Color{
	color.RGBA{R: 0xb0, G: 0xb0, B: 0xb0, A: 0xff},
	color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
	color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
	color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff},
}

// draw writes an SVG file.
func (c chart) draw(dir string) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	for _, text := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		text.Size = textSize
	}
	p.Add(plotter.NewGrid())
	p.X.Tick.Marker = plot.ConstantTicks(c.xTicks())
	if c.logX {
		p.X.Scale = plot.LogScale{}
	}
	for i, s := range c.series {
		if err := s.draw(p, i); len(s.points) > 0 && err != nil {
			return fmt.Errorf("plot %s: %w", c.file, err)
		}
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	legend := 0.05 * float64(len(c.series)) // the share of the height above the lines
	if c.logY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
		p.Y.Max *= math.Pow(p.Y.Max/p.Y.Min, legend/(1-legend))
	} else {
		p.Y.Min, p.Y.Max = 0, p.Y.Max/(1-legend)
	}
	return p.Save(plotWidth, plotHeight, filepath.Join(dir, c.file))
}

// logTicks labels 1, 2 and 5 of each decade.
func logTicks(low, high float64) []plot.Tick {
	ticks := slices.CompactFunc(plot.LogTicks{Prec: -1}.Ticks(low, high), func(a, b plot.Tick) bool { return a.Value == b.Value })
	for i, t := range ticks {
		first := strconv.FormatFloat(t.Value, 'e', 0, 64)[0]
		if ticks[i].Label = ""; first == '1' || first == '2' || first == '5' {
			ticks[i].Label = fmt.Sprintf("%g", t.Value)
		}
	}
	return ticks
}

func (s series) draw(p *plot.Plot, style int) error {
	line, marks, err := plotter.NewLinePoints(s.points)
	if err != nil {
		return err
	}
	line.Color, marks.Color, marks.Shape = palette[style], palette[style], plotutil.Shape(style)
	line.Width, marks.Radius = vg.Points(1.75), vg.Points(3.5)
	if s.name == string(serial) {
		line.Width *= 2.5 // visible below the kubelet's line, which often equals it
	}
	ranges, err := plotter.NewYErrorBars(s.points)
	if err != nil {
		return err
	}
	ranges.Color = palette[style]
	p.Add(line, marks, ranges)
	p.Legend.Add(s.name, line, marks)
	return nil
}

// xTicks are the values of x that were measured.
func (c chart) xTicks() (ticks []plot.Tick) {
	for _, s := range c.series {
		for _, p := range s.points {
			if tick := (plot.Tick{Value: p.x, Label: fmt.Sprintf("%g", p.x)}); !slices.Contains(ticks, tick) {
				ticks = append(ticks, tick)
			}
		}
	}
	return ticks
}
