package main

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// chart is one plot. Values on a logarithmic axis must be positive; points that
// are not are left out.
type chart struct {
	file, title string
	// of is the scenario that it shows, or the part of the page.
	of         string
	x, y       string
	logX, logY bool
	series     []series
	xTicks     []float64
	// falling is for lines that fall, which leave room for the legend below.
	falling bool
}

type series struct {
	name string
	// dashed marks what is not a candidate's, or does not depend on x.
	dashed bool
	points []point
}

// point is a median and the range of the values behind it.
type point struct{ x, y, low, high float64 }

// Size of every plot.
const (
	plotWidth  = 7 * vg.Inch
	plotHeight = 4 * vg.Inch
)

// Room that the reader's font may take more than ours, and the longest line of a
// title, in letters.
const (
	margin    = vg.Length(18)
	titleLine = 60
)

// wrap breaks a title at its commas, where it is too long for one line.
func wrap(title string) string {
	if len(title) <= titleLine {
		return title
	}
	if i := strings.LastIndex(title[:titleLine], ", "); i > 0 {
		return title[:i+1] + "\n" + title[i+2:]
	}
	return title
}

// draw writes an SVG file.
func (c chart) draw(dir string) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text = wrap(c.title)
	p.Title.Padding = vg.Points(8)
	p.X.Label.Text, p.Y.Label.Text = c.x, c.y
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = !c.falling, true, vg.Points(8)
	p.Add(plotter.NewGrid())
	if c.logX {
		p.X.Scale = plot.LogScale{}
	}
	if c.logY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	}
	if len(c.xTicks) > 0 {
		p.X.Tick.Marker = ticks(c.xTicks)
	}
	for i, s := range c.series {
		if err := c.add(p, i, s); err != nil {
			return fmt.Errorf("plot %s: %w", c.file, err)
		}
	}
	if c.logY {
		// Whole decades, so that a line never runs along the frame.
		p.Y.Min, p.Y.Max = math.Pow10(int(math.Floor(math.Log10(p.Y.Min)))), math.Pow10(int(math.Ceil(math.Log10(p.Y.Max))))
	} else {
		p.Y.Min, p.Y.Max = 0, p.Y.Max*1.1
	}
	if err := write(p, filepath.Join(dir, c.file)); err != nil {
		return fmt.Errorf("plot %s: %w", c.file, err)
	}
	return nil
}

// write is [plot.Plot.Save] with a margin.
func write(p *plot.Plot, file string) (err error) {
	canvas, err := draw.NewFormattedCanvas(plotWidth, plotHeight, "svg")
	if err != nil {
		return err
	}
	p.Draw(draw.Crop(draw.New(canvas), 0, -margin, 0, 0))
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = canvas.WriteTo(out)
	return err
}

func (c chart) add(p *plot.Plot, i int, s series) error {
	points := spread(c.drawable(s.points))
	if len(points.XYs) == 0 {
		return nil
	}
	line, marks, err := plotter.NewLinePoints(points.XYs)
	if err != nil {
		return err
	}
	line.Color, marks.Color, marks.Shape = colour(i), colour(i), plotutil.Shape(i)
	line.Width = vg.Points(1.5)
	if s.dashed {
		line.Dashes = plotutil.Dashes(1)
		p.Add(line)
		p.Legend.Add(s.name, line)
		return nil
	}
	bars, err := plotter.NewYErrorBars(points)
	if err != nil {
		return err
	}
	bars.Color = colour(i)
	p.Add(line, marks, bars)
	p.Legend.Add(s.name, line, marks)
	return nil
}

func (c chart) drawable(in []point) []point {
	var out []point
	for _, p := range in {
		if (c.logX && p.x <= 0) || (c.logY && p.low <= 0) {
			continue
		}
		out = append(out, p)
	}
	return out
}

type spreadPoints struct {
	plotter.XYs
	plotter.YErrors
}

func spread(in []point) spreadPoints {
	var out spreadPoints
	for _, p := range in {
		out.XYs = append(out.XYs, plotter.XY{X: p.x, Y: p.y})
		out.YErrors = append(out.YErrors, struct{ Low, High float64 }{p.low - p.y, p.high - p.y})
	}
	return out
}

// logTicks labels 1, 2 and 5 of each decade.
func logTicks(low, high float64) []plot.Tick {
	var out []plot.Tick
	for decade := math.Pow10(int(math.Floor(math.Log10(low)))); decade <= high; decade *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if v := n * decade; v >= low && v <= high {
				out = append(out, plot.Tick{Value: v, Label: fmt.Sprintf("%.6g", v)})
			}
		}
	}
	return out
}

func ticks(at []float64) plot.ConstantTicks {
	var out plot.ConstantTicks
	for _, v := range at {
		out = append(out, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
	}
	return out
}

// colour is that of the n-th series. A burst has one more than the palette.
func colour(n int) color.Color {
	if n == len(plotutil.SoftColors) {
		return color.Black
	}
	return plotutil.Color(n)
}
