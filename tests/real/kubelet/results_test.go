//go:build linux

package e2e_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// result contains the measurements of one kind of kubelet over all runs.
type result struct {
	// rows are the names of the figures in the order of their measurement.
	rows   []string
	values map[string][]float64
	// errors is the number of errors of each kind in the log.
	errors map[string]int
}

// newResults returns an empty result of each kind.
func newResults(kinds []string) map[string]*result {
	results := make(map[string]*result)
	for _, kind := range kinds {
		results[kind] = &result{values: make(map[string][]float64), errors: make(map[string]int)}
	}
	return results
}

func (r *result) add(row string, values ...float64) {
	if r.values[row] == nil {
		r.rows = append(r.rows, row)
	}
	r.values[row] = append(r.values[row], values...)
}

func (r *result) seconds(what string, d time.Duration) { r.add(what+" (s)", d.Seconds()) }

func (r *result) restarts(what string, took []time.Duration) {
	for _, d := range took {
		r.add(what+": restarted (ms)", milliseconds(d))
	}
}

// count adds the errors that came between two looks at the log.
func (r *result) count(before, now map[string]int) {
	for kind, n := range now {
		if n > before[kind] {
			r.errors[kind] += n - before[kind]
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// table contains the spread of each figure.
func table(title string, kinds []string, results map[string]*result) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| %s | %s |\n", title, strings.Join(kinds, " | "))
	out.WriteString("| --- |" + strings.Repeat(" ---: |", len(kinds)) + "\n")
	for _, row := range results[kinds[0]].rows {
		out.WriteString("| " + row)
		for _, kind := range kinds {
			out.WriteString(" | ")
			if v := results[kind].values[row]; len(v) > 0 {
				out.WriteString(spread(slices.Sorted(slices.Values(v))))
			}
		}
		out.WriteString(" |\n")
	}
	return out.String()
}

func median(sorted []float64) float64 {
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// spread is the median, the least and the greatest value, the average and the standard deviation.
func spread(v []float64) string {
	var sum, squares float64
	for _, x := range v {
		sum += x
	}
	average := sum / float64(len(v))
	for _, x := range v {
		squares += (x - average) * (x - average)
	}
	deviation := math.Sqrt(squares / float64(max(1, len(v)-1)))
	return fmt.Sprintf("%s (%s to %s), %s ± %s", number(median(v)), number(v[0]), number(v[len(v)-1]), number(average), number(deviation))
}

// number prints no more digits than a reader needs.
func number(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.0f", v)
}
