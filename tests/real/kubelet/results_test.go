//go:build linux

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// result has the measurements of one kind of kubelet over all runs.
type result struct {
	// rows are the names of the figures in the order of their measurement.
	rows   []string
	values map[string][]float64
	// errors is the number of errors of each kind in the log.
	errors map[string]int
}

// newResults returns an empty result of each kind.
func newResults() map[string]*result {
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

func (r *result) count(errors map[string]int) {
	for kind, n := range errors {
		r.errors[kind] += n
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// table has the median and the maximum of each figure.
func table(results map[string]*result) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| %s, %d static pods: median, maximum | %s |\n", lab.DefaultRuntime(), pods, strings.Join(kinds, " | "))
	out.WriteString("| --- |" + strings.Repeat(" ---: |", len(kinds)) + "\n")
	for _, row := range results[kinds[0]].rows {
		out.WriteString("| " + row)
		for _, kind := range kinds {
			v := slices.Sorted(slices.Values(results[kind].values[row]))
			if len(v) == 0 {
				out.WriteString(" | ")
				continue
			}
			out.WriteString(" | " + number((v[(len(v)-1)/2]+v[len(v)/2])/2) + ", " + number(v[len(v)-1]))
		}
		out.WriteString(" |\n")
	}
	return out.String()
}

// number has no more digits than a reader needs.
func number(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.0f", v)
}
