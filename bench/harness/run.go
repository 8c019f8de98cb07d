package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// bench is one run of the benchmark.
type bench struct {
	settings
	scenarios []Scenario
	temp      string    // folder for the sockets
	progress  io.Writer // gets a line for each measurement
	labs      int       // counts the labs, for unique names
	revision  string    // of the measured programs
}

func newBench(chosen []Scenario, s settings) (*bench, error) {
	if s.runs == 0 {
		chosen = nil
	}
	temp, err := os.MkdirTemp("", "pleg-bench-")
	if err != nil {
		return nil, err
	}
	return &bench{settings: s, scenarios: chosen, temp: temp, progress: os.Stderr, revision: revision(s.root)}, os.MkdirAll(s.out, 0o755)
}

func (b *bench) close() error { return os.RemoveAll(b.temp) }

// run measures every scenario and adds it to the results, which it writes after each: a
// run takes hours.
func (b *bench) run(ctx context.Context, r *Results) error {
	for i, s := range b.scenarios {
		rows, err := b.scenario(ctx, s, fmt.Sprintf("%d of %d: %s", i+1, len(b.scenarios), s.Name))
		if err != nil {
			return err
		}
		r.Machine = thisMachine()
		r.replace(rows)
		if err := r.write(b.out); err != nil {
			return err
		}
	}
	return nil
}

// scenario measures the candidates in turns, so that other load on the machine affects
// all of them. If a measurement fails, the earlier results of the scenario stay.
func (b *bench) scenario(ctx context.Context, s Scenario, title string) ([]*Row, error) {
	began := time.Now().UTC().Truncate(time.Second)
	rows := make([]*Row, len(s.Candidates))
	for i, c := range s.Candidates {
		rows[i] = &Row{Scenario: s.Name, Candidate: c, Began: began, Revision: b.revision}
	}
	for n := range b.runs {
		for _, row := range rows {
			fmt.Fprintf(b.progress, "%s, run %d, %s\n", title, n+1, row.Candidate)
			m, err := s.Measure(ctx, b, row.Candidate)
			if ctx.Err() != nil {
				return nil, fmt.Errorf("interrupted in scenario %s", s.Name)
			}
			if err != nil {
				return nil, fmt.Errorf("scenario %s, candidate %s: %w", s.Name, row.Candidate, err)
			}
			row.add(m)
		}
	}
	return rows, nil
}

// revision is the commit of the work tree, with a plus if the code differs from it; empty
// if git does not report one.
func revision(root string) string {
	out, _ := exec.Command("git", "-C", root, "describe", "--always", "--abbrev=10", "--dirty=+").Output()
	return string(bytes.TrimSpace(out))
}
