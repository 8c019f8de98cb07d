package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Step is a Go benchmark of a single step, such as the diff.
type Step struct {
	Name string `json:"name"`
	// Metrics has the units of the Go benchmark as keys.
	Metrics map[string]*Figure `json:"metrics"`
}

// stepPackages are the Go benchmarks of the report: folders of modules, from the
// root of the repository, and packages in them.
var stepPackages = []struct{ module, pkg string }{
	{".", "./bench"},
	{"bench/harness", "./fanout"},
	{"bench/kubelet", "."},
}

// measureSteps runs the Go benchmarks. If one fails, the results keep the steps
// before it and the reason.
func (r *Results) measureSteps(ctx context.Context, root string, runs int) error {
	r.Steps, r.StepsPartial = nil, ""
	for _, p := range stepPackages {
		out, err := goBench(ctx, filepath.Join(root, p.module), runs, p.pkg)
		if err != nil {
			r.StepsPartial = err.Error()
			return err
		}
		r.Steps = append(r.Steps, parseSteps(out)...)
	}
	return nil
}

// goBench runs Go benchmarks. With an error it returns the output until then.
func goBench(ctx context.Context, dir string, runs int, packages ...string) ([]byte, error) {
	args := []string{"test", "-run", "^$", "-bench", ".", "-benchtime", "200ms", "-count", strconv.Itoa(runs)}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("go benchmarks of %s in %s: %w: %s", strings.Join(packages, " "), dir, err, out.Bytes())
	}
	return out.Bytes(), nil
}

// units are kept, in the order of the columns.
var units = append(slices.Clip(perUnit), "ns/op", "B/op", "allocs/op")

// perUnit are the units of a step that handles many things; a step has at most one.
var perUnit = []string{"ns/pod", "ns/event", "ns/event-subscriber"}

func parseSteps(out []byte) []Step {
	var steps []Step
	reader := benchfmt.NewReader(bytes.NewReader(out), "go test")
	for reader.Scan() {
		result, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		base, parts := result.Name.Parts()
		// The number of cores is part of the machine.
		name := string(base) + string(bytes.Join(slices.DeleteFunc(parts, isCores), nil))
		i := indexStep(steps, name)
		if i < 0 {
			steps, i = append(steps, Step{Name: name, Metrics: make(map[string]*Figure)}), len(steps)
		}
		for _, v := range result.Values {
			// The reader turns ns into seconds; the tables show ns.
			if v.OrigUnit != "" {
				v.Unit, v.Value = v.OrigUnit, v.OrigValue
			}
			steps[i].add(v.Unit, v.Value)
		}
	}
	return steps
}

func indexStep(steps []Step, name string) int {
	return slices.IndexFunc(steps, func(s Step) bool { return s.Name == name })
}

func isCores(part []byte) bool { return part[0] == '-' }

func (s *Step) add(unit string, value float64) {
	if !slices.Contains(units, unit) {
		return
	}
	row := Row{Metrics: s.Metrics}
	row.add(Metrics{unit: value})
}

// parameter returns a value from the name, such as 110 from "Relist/pods=110".
func (s *Step) parameter(key string) string {
	for part := range strings.SplitSeq(s.Name, "/") {
		if name, value, ok := strings.Cut(part, "="); ok && name == key {
			return value
		}
	}
	return ""
}

func stepTable(steps []Step) string {
	var b strings.Builder
	b.WriteString("| step | ns per pod, per event, or per event and subscriber | ns | bytes | allocations |\n|---|---:|---:|---:|---:|\n")
	for _, s := range steps {
		var each *Figure
		for _, unit := range perUnit {
			each = cmp.Or(each, s.Metrics[unit])
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", s.Name, each, s.Metrics["ns/op"], s.Metrics["B/op"], s.Metrics["allocs/op"])
	}
	return b.String()
}
