package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// chart is one plot. Points that are not positive are left out on a logarithmic
// axis.
type chart struct {
	file, title string
	// group is the section of the results that shows the plot.
	group      string
	x, y       string
	logX, logY bool
	series     []series
}

type series struct {
	name string
	// dashed marks a reference line: it has no marks and no ranges.
	dashed bool
	points []point
}

// point is a median and the range of the values behind it.
type point struct{ x, y, low, high float64 }

// drawable has the points and their ranges, as the plotter wants them.
type drawable []point

func (d drawable) Len() int                    { return len(d) }
func (d drawable) XY(i int) (x, y float64)     { return d[i].x, d[i].y }
func (d drawable) YError(i int) (l, h float64) { return d[i].y - d[i].low, d[i].high - d[i].y }

// The size of every plot, with the text large enough for two plots beside each
// other on a page. margin is room for a reader's font that is wider than ours.
const (
	plotWidth     = 6 * vg.Inch
	plotHeight    = 4.6 * vg.Inch
	textSize      = vg.Length(13)
	margin        = vg.Length(18)
	legendLine    = vg.Length(19)
	legendColumns = 2
)

// palette can be told apart by colour-blind readers. The first two colours belong
// to serial and kubelet.
var palette = []color.Color{
	color.RGBA{R: 0xb0, G: 0xb0, B: 0xb0, A: 0xff},
	color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
	color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
	color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff},
}

// mostSeries is how many lines a reader can tell apart.
const mostSeries = 6

// styles returns the index of each series in the palette.
func (c chart) styles() []int {
	free := []int{2, 3, 4, 5, 1, 0}
	var out []int
	for _, s := range c.series {
		switch s.name {
		case string(serial):
			out = append(out, 0)
		case string(kubelet):
			out = append(out, 1)
		default:
			out, free = append(out, free[0]), append(free[1:], free[0])
		}
	}
	return out
}

// draw writes an SVG file.
func (c chart) draw(dir string) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := c.empty()
	var legend [legendColumns]plot.Legend
	rows := (len(c.series) + legendColumns - 1) / legendColumns
	for i := range legend {
		legend[i] = plot.NewLegend()
		legend[i].Top, legend[i].Left, legend[i].Padding = true, true, vg.Points(3)
		legend[i].TextStyle.Font.Size = textSize - 1
	}
	styles := c.styles()
	for i, s := range c.series {
		if err := c.add(p, &legend[i/rows], s, styles[i]); err != nil {
			return fmt.Errorf("plot %s: %w", c.file, err)
		}
	}
	if c.logY {
		p.Y.Min, p.Y.Max = logRange(p.Y.Min, p.Y.Max)
	} else {
		p.Y.Min, p.Y.Max = 0, p.Y.Max*1.1
	}
	return c.write(p, legend, vg.Length(rows)*legendLine, dir)
}

// empty is the plot without its lines.
func (c chart) empty() *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Title.Padding, p.Title.TextStyle.Font.Size = c.title, textSize+vg.Points(14), textSize+2
	p.X.Label.Text, p.X.Label.TextStyle.Font.Size = c.x, textSize
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = textSize-1, textSize-1
	p.Add(plotter.NewGrid())
	if c.logX {
		p.X.Scale = plot.LogScale{}
	}
	if c.logY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	}
	p.X.Tick.Marker = c.xTicks()
	return p
}

// write is [plot.Plot.Save] with a margin, the label of the y axis above the data
// and the legend below.
func (c chart) write(p *plot.Plot, legend [legendColumns]plot.Legend, legendHeight vg.Length, dir string) error {
	canvas, err := draw.NewFormattedCanvas(plotWidth, plotHeight, "svg")
	if err != nil {
		return err
	}
	all := draw.New(canvas)
	all.SetColor(p.BackgroundColor)
	all.Fill(all.Path())
	p.Draw(draw.Crop(all, margin/2, -margin, legendHeight+vg.Points(6), -vg.Points(4)))
	label := p.X.Label.TextStyle
	label.XAlign, label.YAlign = draw.XLeft, draw.YTop
	all.FillText(label, vg.Point{X: margin / 2, Y: plotHeight - p.Title.TextStyle.Font.Size - vg.Points(16)}, c.y)
	for i, l := range legend {
		left := margin + vg.Length(i)*plotWidth*0.45
		l.Draw(draw.Crop(all, left, 0, 0, legendHeight-plotHeight))
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, c.file), svg.Bytes(), 0o644)
}

func (c chart) add(p *plot.Plot, legend *plot.Legend, s series, style int) error {
	points := drawable(slices.DeleteFunc(slices.Clone(s.points), func(p point) bool {
		return c.logX && p.x <= 0 || c.logY && p.low <= 0
	}))
	if len(points) == 0 {
		return nil
	}
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, marks.Color, marks.Shape = palette[style], palette[style], plotutil.Shape(style)
	line.Width, marks.Radius = vg.Points(1.75), vg.Points(3.5)
	if s.name == string(serial) {
		line.Width *= 2.5 // visible below the kubelet's line, which often equals it
	}
	if s.dashed {
		line.Dashes = plotutil.Dashes(1)
		p.Add(line)
		legend.Add(s.name, line)
		return nil
	}
	ranges, err := plotter.NewYErrorBars(points)
	if err != nil {
		return err
	}
	ranges.Color = palette[style]
	p.Add(line, marks, ranges)
	legend.Add(s.name, line, marks)
	return nil
}

// xTicks are the values of x that were measured.
func (c chart) xTicks() plot.ConstantTicks {
	var at []float64
	for _, s := range c.series {
		for _, p := range s.points {
			at = append(at, p.x)
		}
	}
	slices.Sort(at)
	var out plot.ConstantTicks
	for _, x := range slices.Compact(at) {
		out = append(out, plot.Tick{Value: x, Label: fmt.Sprintf("%g", x)})
	}
	return out
}

// logTicks labels 1, 2 and 5 of each decade, or decades only if there are many.
func logTicks(low, high float64) []plot.Tick {
	var out []plot.Tick
	for i, v := range logSteps(low, high) {
		tick := plot.Tick{Value: v}
		if i%3 == 0 || high/low < 2000 {
			tick.Label = strconv.FormatFloat(v, 'f', -1, 64)
		}
		if low <= v && v <= high {
			out = append(out, tick)
		}
	}
	return out
}

// logRange widens a range to ticks, with room between the lines and the frame.
func logRange(low, high float64) (from, to float64) {
	from, to = low, high
	steps := logSteps(low, high)
	for _, v := range steps {
		if v <= low*0.95 {
			from = v
		}
	}
	for i := len(steps) - 1; i >= 0 && steps[i] >= high*1.05; i-- {
		to = steps[i]
	}
	return from, to
}

// logSteps are 1, 2 and 5 of the decades from that below low to that above high.
func logSteps(low, high float64) []float64 {
	var out []float64
	first, last := int(math.Floor(math.Log10(low)))-1, int(math.Ceil(math.Log10(high)))+1
	for decade := first; decade <= last; decade++ {
		for _, n := range []float64{1, 2, 5} {
			out = append(out, n*math.Pow10(decade))
		}
	}
	return out
}
