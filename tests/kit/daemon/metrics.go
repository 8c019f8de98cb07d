package daemon

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// Metrics reads the metrics of a daemon that serves HTTP: the sum of each over its labels.
func (d *Daemon) Metrics(ctx context.Context) (map[string]float64, error) {
	page, err := process.Get(ctx, d.http, d.URL+"/metrics")
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", d.Name, err)
	}
	values, err := parseMetrics(page)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", d.Name, err)
	}
	return values, nil
}

// parseMetrics returns the sum of each metric over its labels.
func parseMetrics(page string) (map[string]float64, error) {
	values := make(map[string]float64)
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
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
	return values, nil
}
