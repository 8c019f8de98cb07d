package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Results are everything that one run of the benchmark measured.
type Results struct {
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	// Partial is why not everything was measured; empty if it was.
	Partial   string     `json:"partial,omitempty"`
	Machine   Machine    `json:"machine"`
	Runs      int        `json:"runs"`
	Scenarios []*Outcome `json:"scenarios"`
	// Steps are the Go benchmarks of single steps.
	Steps []Step `json:"steps,omitempty"`
	// StepsPartial is why not all of them were run; empty if they were.
	StepsPartial string `json:"stepsPartial,omitempty"`
}

// Machine is where it was measured.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// Outcome is what one scenario measured, candidate by candidate.
type Outcome struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	Title string `json:"title"`
	// Began is when it was measured.
	Began time.Time `json:"began"`
	// Of is what was measured.
	Of   Version `json:"of,omitzero"`
	Rows []*Row  `json:"rows"`
}

// Row holds the figures of one candidate.
type Row struct {
	Candidate Candidate          `json:"candidate"`
	Metrics   map[string]*Figure `json:"metrics"`
}

// Figure is one metric over all runs.
type Figure struct {
	Values []float64 `json:"values"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
}

func (o *Outcome) row(c Candidate) *Row {
	for _, r := range o.Rows {
		if r.Candidate == c {
			return r
		}
	}
	r := &Row{Candidate: c, Metrics: make(map[string]*Figure)}
	o.Rows = append(o.Rows, r)
	return r
}

// complete reports whether every candidate of the scenario was measured so often,
// at that version.
func (o *Outcome) complete(s Scenario, runs int, of Version) bool {
	return o.Of.Programs == of.Programs && !slices.ContainsFunc(s.Candidates, func(c Candidate) bool {
		return !slices.ContainsFunc(o.Rows, func(r *Row) bool { return r.Candidate == c && r.runs() >= runs })
	})
}

// runs is how often the candidate was measured.
func (r *Row) runs() int {
	n := 0
	for _, f := range r.Metrics {
		n = max(n, len(f.Values))
	}
	return n
}

// median returns the median of a metric, and whether there is one.
func (o *Outcome) median(c Candidate, key string) (float64, bool) {
	for _, r := range o.Rows {
		if f := r.Metrics[key]; r.Candidate == c && f != nil {
			return f.Median, true
		}
	}
	return 0, false
}

func (r *Row) add(m Metrics) {
	for key, value := range m {
		f := r.Metrics[key]
		if f == nil {
			f = new(Figure)
			r.Metrics[key] = f
		}
		f.Values = append(f.Values, value)
		f.Median, f.Min, f.Max = median(f.Values), slices.Min(f.Values), slices.Max(f.Values)
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

func (r *Results) outcome(name string) *Outcome {
	for _, o := range r.Scenarios {
		if o.Name == name {
			return o
		}
	}
	return nil
}

// with returns these results and what earlier ones have besides, in the order of
// the scenarios. What is no scenario any more is left out.
func (r *Results) with(earlier *Results) *Results {
	if earlier == nil {
		return r
	}
	both := *r
	both.Scenarios = nil
	for _, s := range scenarios() {
		if o := r.outcome(s.Name).with(earlier.outcome(s.Name)); o != nil {
			both.Scenarios = append(both.Scenarios, o)
		}
	}
	if len(r.Steps) == 0 {
		both.Steps, both.StepsPartial = earlier.Steps, earlier.StepsPartial
	}
	return &both
}

// with returns this outcome and the candidates that were measured more often
// before, if that was of the same version.
func (o *Outcome) with(earlier *Outcome) *Outcome {
	switch {
	case earlier == nil:
		return o
	case o == nil || len(o.Rows) == 0:
		return earlier
	case o.Of.Programs != earlier.Of.Programs:
		return o
	}
	both := *o
	both.Rows = slices.Clone(o.Rows)
	for _, row := range earlier.Rows {
		i := slices.IndexFunc(both.Rows, func(r *Row) bool { return r.Candidate == row.Candidate })
		switch {
		case i < 0:
			both.Rows = append(both.Rows, row)
		case both.Rows[i].runs() < row.runs():
			both.Rows[i] = row
		}
	}
	return &both
}

// runs is how often each candidate was measured, at least.
func (o *Outcome) runs() int {
	if len(o.Rows) == 0 {
		return 0
	}
	return slices.MinFunc(o.Rows, func(a, b *Row) int { return a.runs() - b.runs() }).runs()
}

// resultsFile is where the figures are kept for every later use.
const resultsFile = "results.json"

func (r *Results) write(dir string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	// In one step: who is killed while he writes is to lose nothing.
	file := filepath.Join(dir, resultsFile)
	if err := os.WriteFile(file+".new", append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

func readResults(dir string) (*Results, error) {
	data, err := os.ReadFile(filepath.Join(dir, resultsFile))
	if err != nil {
		return nil, fmt.Errorf("read results (make bench writes them): %w", err)
	}
	r := new(Results)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("read results %s: %w", dir, err)
	}
	return r, nil
}

// thisMachine leaves empty what the system does not tell.
func thisMachine() Machine {
	return Machine{
		CPU: after("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		Memory: after("/proc/meminfo", "MemTotal"),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), Go: runtime.Version(),
	}
}

// after returns what follows a key and a colon in a file of /proc.
func after(file, key string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func firstLine(file string) string {
	data, _ := os.ReadFile(file)
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return string(line)
}
