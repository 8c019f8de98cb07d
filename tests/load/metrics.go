package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

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
