package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sample is the use of resources of a daemon at one moment.
type Sample struct {
	// At is the time since the run began.
	At time.Duration
	// HeapBytes are live after the last garbage collection.
	HeapBytes  float64
	Goroutines float64
	FDs        float64
	RSSBytes   float64
	CPUSeconds float64
	// Events are the published events, Discarded those that subscribers missed.
	Events    float64
	Discarded float64
}

// MiB is a number of bytes.
func MiB(bytes float64) float64 { return bytes / (1 << 20) }

// measures are the figures that must not grow. bound is the greatest slope, in units per hour.
var measures = []struct {
	name, unit string
	of         func(Sample) float64
	bound      float64
}{
	{"heap in use after GC", "MiB", func(s Sample) float64 { return MiB(s.HeapBytes) }, 1},
	{"goroutines", "", func(s Sample) float64 { return s.Goroutines }, 2},
	{"file descriptors", "", func(s Sample) float64 { return s.FDs }, 1},
	{"resident memory", "MiB", func(s Sample) float64 { return MiB(s.RSSBytes) }, 8},
}

// Metrics reads the metrics of a daemon that serves HTTP: the sum of each over its labels.
func (d *Daemon) Metrics(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL+"/metrics", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", d.Name, err)
	}
	answer, err := d.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", d.Name, err)
	}
	defer func() { _ = answer.Body.Close() }()
	values, err := parseMetrics(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", d.Name, err)
	}
	return values, nil
}

// sample reads the metrics that a soak measures. All metrics except the events must be there.
func (d *Daemon) sample(ctx context.Context, r *Run) (Sample, error) {
	values, err := d.Metrics(ctx)
	s := Sample{At: r.Elapsed(), Events: values["pleg_events_total"]}
	for name, to := range map[string]*float64{
		"go_gc_heap_live_bytes": &s.HeapBytes, "go_goroutines": &s.Goroutines,
		"process_open_fds": &s.FDs, "process_resident_memory_bytes": &s.RSSBytes,
		"process_cpu_seconds_total": &s.CPUSeconds, "pleg_discarded_events_total": &s.Discarded,
	} {
		value, ok := values[name]
		if !ok && err == nil {
			err = fmt.Errorf("%s has no metric %s", d.Name, name)
		}
		*to = value
	}
	return s, err
}

// parseMetrics returns the sum of each metric over its labels.
func parseMetrics(r io.Reader) (map[string]float64, error) {
	values := make(map[string]float64)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		end := strings.LastIndexByte(line, ' ')
		if end < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		value, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		name, _, _ := strings.Cut(line[:end], "{")
		values[name] += value
	}
	return values, lines.Err()
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
func figures(samples []Sample) (all []figure) {
	half := samples[len(samples)/2:]
	if len(half) == 0 {
		return nil
	}
	for _, m := range measures {
		var at []time.Duration
		var values []float64
		for _, s := range half {
			at, values = append(at, s.At), append(values, m.of(s))
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
