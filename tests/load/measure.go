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
	At time.Duration `json:"atNS"`
	// HeapBytes are live after the last garbage collection.
	HeapBytes  float64 `json:"heapBytes"`
	Goroutines float64 `json:"goroutines"`
	FDs        float64 `json:"fds"`
	RSSBytes   float64 `json:"rssBytes"`
	CPUSeconds float64 `json:"cpuSeconds"`
	// Events are the published events, Discarded those that subscribers missed.
	Events    float64 `json:"events"`
	Discarded float64 `json:"discarded"`
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

// Figure is one measure in the second half of a run.
type Figure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// First, Min, Max and Last are those of the second half.
	First float64 `json:"first"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	Last  float64 `json:"last"`
	// PerHour is the slope of a line through the samples, and StdErr its standard error,
	// in units per hour. Bound is the greatest slope.
	PerHour float64 `json:"perHour"`
	StdErr  float64 `json:"stdErr"`
	Bound   float64 `json:"bound"`
	// Judged is false if there are too few samples. Exceeded: the slope is above Bound by
	// more than two standard errors.
	Judged   bool `json:"judged"`
	Exceeded bool `json:"exceeded"`
}

// figures fits a line to the second half of the samples, for each measure.
func figures(samples []Sample) []Figure {
	half := samples[len(samples)/2:]
	if len(half) == 0 {
		return nil
	}
	var all []Figure
	for _, m := range measures {
		var at []time.Duration
		var values []float64
		for _, s := range half {
			at, values = append(at, s.At), append(values, m.of(s))
		}
		f := Figure{
			Name: m.name, Unit: m.unit, Bound: m.bound, Judged: len(half) >= minSamples,
			First: values[0], Min: slices.Min(values), Max: slices.Max(values), Last: values[len(values)-1],
		}
		f.PerHour, f.StdErr = fit(at, values)
		f.Exceeded = f.Judged && f.PerHour-2*f.StdErr > f.Bound
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
