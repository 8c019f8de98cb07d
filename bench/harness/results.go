package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// Results are the summary of all measurements.
type Results struct {
	Machine Machine
	Rows    []*Row
}

// Machine is the machine of the last measurement.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// Row holds the figures of one candidate in one scenario.
type Row struct {
	Scenario  string    `json:"scenario"`
	Candidate Candidate `json:"candidate"`
	Began     time.Time `json:"began,omitzero"`
	// Revision is the commit of the repository when the measurement began, with a plus if the
	// code differed from it; empty if git does not report one.
	Revision string            `json:"revision,omitempty"`
	Runs     int               `json:"runs,omitempty"`
	Metrics  map[string]Figure `json:"metrics"`

	values map[string][]float64 // of all runs
}

// Figure is one metric over all runs: the median, the least and the greatest value.
type Figure [3]float64

func (f Figure) median() float64 { return f[0] }

// add adds the figures of one run.
func (r *Row) add(m Metrics) {
	if r.values == nil {
		r.values, r.Metrics = make(map[string][]float64), make(map[string]Figure)
	}
	for key, value := range m {
		all := append(r.values[key], value)
		r.values[key], r.Runs = all, len(all)
		r.Metrics[key] = Figure{rounded(median(all)), rounded(slices.Min(all)), rounded(slices.Max(all))}
	}
}

// rounded is written with four significant digits.
func rounded(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return short
}

// figure returns false if there is none.
func (r *Results) figure(scenario string, c Candidate, metric string) (Figure, bool) {
	for _, row := range r.Rows {
		if row.Scenario == scenario && row.Candidate == c {
			f, ok := row.Metrics[metric]
			return f, ok
		}
	}
	return Figure{}, false
}

// replace adds rows in place of the earlier ones of their scenarios. Rows are in the order of the
// scenarios; rows of scenarios that no longer exist are left out.
func (r *Results) replace(rows []*Row) {
	order := make(map[string]int)
	for i, s := range scenarios() {
		order[s.Name] = i + 1
	}
	r.Rows = append(slices.DeleteFunc(r.Rows, func(old *Row) bool {
		return order[old.Scenario] == 0 ||
			slices.ContainsFunc(rows, func(row *Row) bool { return row.Scenario == old.Scenario })
	}), rows...)
	slices.SortStableFunc(r.Rows, func(a, b *Row) int { return order[a.Scenario] - order[b.Scenario] })
}

// resultsFile contains one row in a line.
const resultsFile = "results.jsonl"

func (r *Results) write(dir string) error {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	err := lines.Encode(r.Machine)
	for _, row := range r.Rows {
		err = errors.Join(err, lines.Encode(row))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, resultsFile), text.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// readResults returns no rows if there is no file.
func readResults(dir string) (*Results, error) {
	r := new(Results)
	text, err := os.ReadFile(filepath.Join(dir, resultsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	lines := json.NewDecoder(bytes.NewReader(text))
	err = lines.Decode(&r.Machine)
	for err == nil {
		row := new(Row)
		if err = lines.Decode(row); err == nil {
			r.Rows = append(r.Rows, row)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read results in %s: %w", dir, err)
	}
	return r, nil
}

// cpuModel is a line of /proc/cpuinfo.
var cpuModel = regexp.MustCompile(`model name\s*: (.*)`)

// thisMachine leaves fields empty that the system does not report.
func thisMachine() Machine {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	info, _ := os.ReadFile("/proc/cpuinfo")
	m := Machine{Cores: runtime.NumCPU(), Kernel: string(bytes.TrimSpace(kernel)), Go: runtime.Version()}
	if model := cpuModel.FindSubmatch(info); model != nil {
		m.CPU = string(model[1])
	}
	return m
}
