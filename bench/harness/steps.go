package main

import (
	"bytes"
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

// stepPackages are the Go benchmarks of single steps, such as the diff: folders of
// modules, from the root of the repository, and packages in them.
var stepPackages = []struct{ module, pkg string }{
	{".", "./bench"},
	{"bench/harness", "./fanout"},
	{"bench/kubelet", "."},
}

// measureSteps runs the Go benchmarks. If one fails, the earlier results stay.
func (r *Results) measureSteps(ctx context.Context, root string, runs int) error {
	var steps []*Row
	for _, p := range stepPackages {
		fmt.Fprintln(os.Stderr, "Go benchmarks of", p.module, p.pkg)
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchtime", "200ms", "-count", strconv.Itoa(runs), p.pkg)
		cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(root, p.module), &out, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go benchmarks of %s in %s: %w: %s", p.pkg, p.module, err, out.Bytes())
		}
		steps = append(steps, parseSteps(out.Bytes())...)
	}
	r.Rows = slices.DeleteFunc(r.Rows, func(row *Row) bool { return row.Candidate == "" })
	r.replace(steps)
	return nil
}

// stepUnits are the units that the results have.
var stepUnits = []string{"ns/pod", "ns/event-subscriber", "ns/op", "allocs/op"}

func parseSteps(out []byte) []*Row {
	var steps []*Row
	reader := benchfmt.NewReader(bytes.NewReader(out), "go test")
	for reader.Scan() {
		result, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		base, parts := result.Name.Parts()
		// The number of cores is part of the machine.
		name := string(base) + string(bytes.Join(slices.DeleteFunc(parts, func(part []byte) bool { return part[0] == '-' }), nil))
		i := slices.IndexFunc(steps, func(s *Row) bool { return s.Scenario == name })
		if i < 0 {
			steps, i = append(steps, &Row{Scenario: name}), len(steps)
		}
		m := make(Metrics)
		for _, v := range result.Values {
			// The reader turns ns into seconds; the tables show ns.
			if v.OrigUnit != "" {
				v.Unit, v.Value = v.OrigUnit, v.OrigValue
			}
			if slices.Contains(stepUnits, v.Unit) {
				m[v.Unit] = v.Value
			}
		}
		steps[i].add(m)
	}
	return steps
}

// parameter returns a value from the name, such as 110 from "Relist/pods=110".
func (r *Row) parameter(key string) string {
	for part := range strings.SplitSeq(r.Scenario, "/") {
		if name, value, ok := strings.Cut(part, "="); ok && name == key {
			return value
		}
	}
	return ""
}
