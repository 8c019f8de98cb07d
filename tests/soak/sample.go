package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Sample is the use of resources of an agent at one moment.
type Sample struct {
	// At is the time since the soak began.
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

// measure is a figure that must not grow.
type measure struct {
	name, unit string
	of         func(Sample) float64
	// bound is the greatest slope, in units per hour.
	bound float64
}

func mib(bytes float64) float64 { return bytes / (1 << 20) }

var measures = []measure{
	{"heap in use after GC", "MiB", func(s Sample) float64 { return mib(s.HeapBytes) }, 1},
	{"goroutines", "", func(s Sample) float64 { return s.Goroutines }, 2},
	{"file descriptors", "", func(s Sample) float64 { return s.FDs }, 1},
	{"resident memory", "MiB", func(s Sample) float64 { return mib(s.RSSBytes) }, 8},
}

// scrape reads the metrics of an agent.
func scrape(ctx context.Context, c *http.Client, url string) (Sample, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return Sample{}, fmt.Errorf("scrape %s: %w", url, err)
	}
	answer, err := c.Do(request)
	if err != nil {
		return Sample{}, fmt.Errorf("scrape %s: %w", url, err)
	}
	defer func() { _ = answer.Body.Close() }()
	values, err := parseMetrics(answer.Body)
	if err != nil {
		return Sample{}, fmt.Errorf("scrape %s: %w", url, err)
	}
	s := Sample{Events: values["pleg_events_total"]}
	for name, to := range map[string]*float64{
		"go_gc_heap_live_bytes": &s.HeapBytes, "go_goroutines": &s.Goroutines,
		"process_open_fds": &s.FDs, "process_resident_memory_bytes": &s.RSSBytes,
		"process_cpu_seconds_total": &s.CPUSeconds, "pleg_discarded_events_total": &s.Discarded,
	} {
		value, ok := values[name]
		if !ok {
			return Sample{}, fmt.Errorf("scrape %s: no metric %s", url, name)
		}
		*to = value
	}
	return s, nil
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

// Slope is a line fitted by least squares.
type Slope struct {
	// PerHour is the slope, and StdErr its standard error, in units per hour.
	PerHour float64 `json:"perHour"`
	StdErr  float64 `json:"stdErr"`
}

// Exceeds reports whether the slope is above a bound by more than two standard
// errors.
func (s Slope) Exceeds(bound float64) bool { return s.PerHour-2*s.StdErr > bound }

// fit returns the line through the points; the zero Slope for less than three.
func fit(at []time.Duration, values []float64) Slope {
	n := float64(len(at))
	if len(at) < 3 {
		return Slope{}
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
	slope := sxy / sxx
	var residual float64
	for i := range at {
		e := values[i] - meanY - slope*(at[i].Hours()-meanX)
		residual += e * e
	}
	return Slope{PerHour: slope, StdErr: math.Sqrt(residual / (n - 2) / sxx)}
}
