package main

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// logTicks labels 1, 2 and 5 of each decade, or decades only if there are many.
func logTicks(low, high float64) []plot.Tick {
	var out []plot.Tick
	for i, v := range logSteps(low, high) {
		if v < low || v > high {
			continue
		}
		tick := plot.Tick{Value: v}
		if i%3 == 0 || high/low < 2000 {
			tick.Label = strconv.FormatFloat(v, 'f', -1, 64)
		}
		out = append(out, tick)
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
