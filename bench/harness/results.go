package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Results are the measurements of one run of the benchmark.
type Results struct {
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	// Partial is why some scenarios were not measured; empty if all were.
	Partial   string     `json:"partial,omitempty"`
	Machine   Machine    `json:"machine"`
	Runs      int        `json:"runs"`
	Scenarios []*Outcome `json:"scenarios"`
	// Steps are the Go benchmarks of single steps.
	Steps []Step `json:"steps,omitempty"`
	// StepsPartial is why some steps were not measured; empty if all were.
	StepsPartial string `json:"stepsPartial,omitempty"`
}

// Machine is the machine of the measurement.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// Outcome is the measurement of one scenario.
type Outcome struct {
	Name  string    `json:"name"`
	Began time.Time `json:"began"`
	// Of identifies the programs.
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

func (o *Outcome) index(c Candidate) int {
	return slices.IndexFunc(o.Rows, func(r *Row) bool { return r.Candidate == c })
}

// row returns the row of a candidate, and adds it if there is none.
func (o *Outcome) row(c Candidate) *Row {
	i := o.index(c)
	if i < 0 {
		i, o.Rows = len(o.Rows), append(o.Rows, &Row{Candidate: c, Metrics: make(map[string]*Figure)})
	}
	return o.Rows[i]
}

// figure returns nil if there is none, also of a nil outcome.
func (o *Outcome) figure(c Candidate, metric string) *Figure {
	if o == nil || o.index(c) < 0 {
		return nil
	}
	return o.Rows[o.index(c)].Metrics[metric]
}

// complete reports whether every candidate of the scenario has that many runs of
// those programs.
func (o *Outcome) complete(s Scenario, runs int, of Version) bool {
	return o.Of.Programs == of.Programs && !slices.ContainsFunc(s.Candidates, func(c Candidate) bool {
		i := o.index(c)
		return i < 0 || o.Rows[i].runs() < runs
	})
}

// runs is the number of measurements of the candidate.
func (r *Row) runs() int {
	n := 0
	for _, f := range r.Metrics {
		n = max(n, len(f.Values))
	}
	return n
}

func (r *Row) add(m Metrics) {
	for key, value := range m {
		f := r.Metrics[key]
		if f == nil {
			f = new(Figure)
			r.Metrics[key] = f
		}
		f.Values = append(f.Values, value)
		sorted := slices.Sorted(slices.Values(f.Values))
		n := len(sorted)
		f.Median, f.Min, f.Max = (sorted[(n-1)/2]+sorted[n/2])/2, sorted[0], sorted[n-1]
	}
}

func (r *Results) outcome(name string) *Outcome {
	if i := slices.IndexFunc(r.Scenarios, func(o *Outcome) bool { return o.Name == name }); i >= 0 {
		return r.Scenarios[i]
	}
	return nil
}

// with returns these results and what only the earlier ones have, in the order of
// the scenarios. Scenarios that no longer exist are left out.
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

// with returns this outcome with the rows of the earlier one that have more runs,
// if both are of the same programs.
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
		switch i := both.index(row.Candidate); {
		case i < 0:
			both.Rows = append(both.Rows, row)
		case both.Rows[i].runs() < row.runs():
			both.Rows[i] = row
		}
	}
	return &both
}

// runs is the least number of measurements of a candidate.
func (o *Outcome) runs() int {
	if len(o.Rows) == 0 {
		return 0
	}
	return slices.MinFunc(o.Rows, func(a, b *Row) int { return a.runs() - b.runs() }).runs()
}

// resultsFile holds all figures; the report is made from it.
const resultsFile = "results.json"

func (r *Results) write(dir string) error {
	file := filepath.Join(dir, resultsFile)
	data, err := json.MarshalIndent(r, "", " ")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(file+".new", append(data, '\n'), 0o644)
	}
	// Renaming keeps the old file if the process is killed while it writes.
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
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
	for i := range r.Steps {
		r.Steps[i].Name = earlierNames.Replace(r.Steps[i].Name)
	}
	return r, nil
}

// earlierNames replaces what the names of steps had in earlier results.
var earlierNames = strings.NewReplacer("listed=anew", "objects=new", "listed=again", "objects=same")

// thisMachine leaves empty what the system does not report.
func thisMachine() Machine {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return Machine{
		CPU: after("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		Memory: after("/proc/meminfo", "MemTotal"),
		Kernel: string(bytes.TrimSpace(kernel)), Go: runtime.Version(),
	}
}

// after returns the value of a key in a file of /proc.
func after(file, key string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Version identifies the programs that were measured.
type Version struct {
	// Revision is that of the repository when the measurement began, for readers;
	// empty if git does not report one.
	Revision string `json:"revision,omitempty"`
	// Programs is a hash of the programs. They are built without the revision, so
	// that the same code has the same hash.
	Programs string `json:"programs"`
}

func versionOf(root, bin string) (Version, error) {
	hash := sha256.New()
	for _, name := range []string{"harness", "node", "client", "kubelet"} {
		program, err := os.ReadFile(filepath.Join(bin, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Version{}, fmt.Errorf("hash program: %w", err)
		}
		hash.Write(program)
	}
	return Version{Revision: revision(root), Programs: hex.EncodeToString(hash.Sum(nil)[:8])}, nil
}

// revision is the commit of the work tree, with a plus if the code differs from it.
func revision(root string) string {
	head, err := exec.Command("git", "-C", root, "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return "" // no repository, or another user's
	}
	revision := string(bytes.TrimSpace(head))
	changes, err := exec.Command("git", "-C", root, "status", "--porcelain", "--", "*.go", "*go.mod", "*go.sum").Output()
	if err != nil || len(changes) > 0 {
		revision += "+"
	}
	return revision
}
