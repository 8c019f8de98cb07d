package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
)

// sample has the metrics of a daemon at one moment, the time since the run began.
type sample struct {
	at      time.Duration
	metrics map[string]float64
}

// measures are the metrics that must not grow, in units. bound is the greatest slope, in units
// per hour.
var measures = []struct {
	name, unit, metric string
	units, bound       float64
}{
	{"heap in use after GC", "MiB", "go_gc_heap_live_bytes", 1 << 20, 1},
	{"goroutines", "", "go_goroutines", 1, 2},
	{"file descriptors", "", "process_open_fds", 1, 1},
	{"resident memory", "MiB", "process_resident_memory_bytes", 1 << 20, 8},
}

// sample reads the metrics of a daemon. All that are measured must be there.
func (s *soak) sample(ctx context.Context, d *daemon.Daemon) (sample, error) {
	values, err := d.Metrics(ctx)
	for _, m := range measures {
		if _, ok := values[m.metric]; !ok && err == nil {
			err = fmt.Errorf("%s has no metric %s", d.Name, m.metric)
		}
	}
	return sample{s.Elapsed(), values}, err
}

// minSamples is the least number of samples to judge a slope.
const minSamples = 10

// figure is one measure in the second half of a run.
type figure struct {
	name, unit        string
	first, most, last float64
	// perHour is the slope of a line through the samples, and stdErr its standard error,
	// in units per hour. bound is the greatest slope.
	perHour, stdErr, bound float64
	// judged is false if there are too few samples. exceeded: the slope is above bound by
	// more than two standard errors.
	judged, exceeded bool
}

// figures fits a line to the second half of the samples, for each measure.
func figures(samples []sample) (all []figure) {
	half := samples[len(samples)/2:]
	if len(half) == 0 {
		return nil
	}
	for _, m := range measures {
		var at []time.Duration
		var values []float64
		for _, s := range half {
			at, values = append(at, s.at), append(values, s.metrics[m.metric]/m.units)
		}
		f := figure{
			name: m.name, unit: m.unit, bound: m.bound, judged: len(half) >= minSamples,
			first: values[0], most: slices.Max(values), last: values[len(values)-1],
		}
		f.perHour, f.stdErr = fit(at, values)
		f.exceeded = f.judged && f.perHour-2*f.stdErr > f.bound
		all = append(all, f)
	}
	return all
}

// fit returns the slope of the line through the points by least squares and its standard
// error, per hour; zeros for less than three points.
func fit(at []time.Duration, values []float64) (slope, stdErr float64) {
	n := float64(len(at))
	if len(at) < 3 {
		return 0, 0
	}
	var meanX, meanY float64
	for i := range at {
		meanX += at[i].Hours() / n
		meanY += values[i] / n
	}
	var sxx, sxy float64
	for i := range at {
		dx := at[i].Hours() - meanX
		sxx += dx * dx
		sxy += dx * (values[i] - meanY)
	}
	slope = sxy / sxx
	var residual float64
	for i := range at {
		e := values[i] - meanY - slope*(at[i].Hours()-meanX)
		residual += e * e
	}
	return slope, math.Sqrt(residual / (n - 2) / sxx)
}
