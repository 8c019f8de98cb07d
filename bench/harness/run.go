package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sync/errgroup"
)

// bench is one run of the benchmark.
type bench struct {
	scenarios []Scenario
	runs      int
	// root is the root of the repository, bin holds the measured programs, temp
	// the sockets.
	root, bin, temp string
	profiles        string       // folder for CPU profiles of the clients; none if empty
	progress        io.Writer    // shows the progress bar
	realNode        *node        // nil until a scenario needs a real containerd
	labs            atomic.Int64 // counts the labs, for unique names
	version         Version      // of the measured programs
	// measured is called after each scenario with all results until then.
	measured func(*Results) error
}

func (b *bench) program(name string) string { return filepath.Join(b.bin, name) }

// run measures every scenario. Its candidates take turns, or run side by side, so
// that other load on the machine affects all of them. If ctx ends or a scenario
// fails, the results are partial.
func (b *bench) run(ctx context.Context) (*Results, error) {
	r := &Results{Began: time.Now(), Machine: thisMachine(), Runs: b.runs}
	total := 0
	for _, s := range b.scenarios {
		total += b.runs * len(s.Candidates)
	}
	bar := newBar(total, b.progress)
	var err error
	for _, s := range b.scenarios {
		o := &Outcome{Name: s.Name, Began: time.Now(), Of: b.version}
		r.Scenarios = append(r.Scenarios, o)
		if err = b.scenario(ctx, s, o, bar); err != nil {
			r.Partial = err.Error()
			break
		}
		r.Partial = "ended after scenario " + s.Name
		if err = b.measured(r); err != nil {
			break
		}
		r.Partial = ""
	}
	_ = bar.Exit()
	r.Seconds = time.Since(r.Began).Seconds()
	return r, err
}

// skip removes the scenarios that earlier results have already, of the same
// programs on the same machine.
func (b *bench) skip(earlier *Results) {
	if earlier.Machine != thisMachine() {
		return
	}
	all := len(b.scenarios)
	b.scenarios = slices.DeleteFunc(b.scenarios, func(s Scenario) bool {
		o := earlier.outcome(s.Name)
		return o != nil && o.complete(s, b.runs, b.version)
	})
	fmt.Fprintf(b.progress, "%d of %d scenarios already measured\n", all-len(b.scenarios), all)
}

func (b *bench) scenario(ctx context.Context, s Scenario, o *Outcome, bar *progressbar.ProgressBar) error {
	for range b.runs {
		for turn := range s.turns() {
			bar.Describe(s.Name + " " + strings.Trim(fmt.Sprint(turn), "[]"))
			measured, err := b.turn(ctx, s, turn)
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted in scenario %s", s.Name)
			}
			if err != nil {
				return fmt.Errorf("scenario %s, candidate %w", s.Name, err)
			}
			for i, c := range turn {
				o.row(c).add(measured[i])
				_ = bar.Add(1)
			}
		}
	}
	return nil
}

// turn measures candidates at the same time.
func (b *bench) turn(ctx context.Context, s Scenario, candidates []Candidate) ([]Metrics, error) {
	measured := make([]Metrics, len(candidates))
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range candidates {
		group.Go(func() (err error) {
			if measured[i], err = s.Measure(ctx, b, c); err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
			return nil
		})
	}
	return measured, group.Wait()
}

func newBar(total int, to io.Writer) *progressbar.ProgressBar {
	return progressbar.NewOptions(total,
		progressbar.OptionSetWriter(to), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(),
		progressbar.OptionThrottle(100*time.Millisecond))
}

// newBench returns an error if a program is missing.
func newBench(chosen []Scenario, runs int, root, bin string) (*bench, error) {
	if runs < 1 {
		return nil, fmt.Errorf("--runs is %d, want at least 1", runs)
	}
	programs := []string{"node", "client"}
	if slices.ContainsFunc(chosen, func(s Scenario) bool { return slices.ContainsFunc(s.Candidates, Candidate.inKubelet) }) {
		programs = append(programs, "kubelet")
	}
	for _, name := range programs {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return nil, fmt.Errorf("program %s is missing (make -C bench programs builds it): %w", name, err)
		}
	}
	version, err := versionOf(root, bin)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "pleg-bench-")
	if err != nil {
		return nil, err
	}
	return &bench{
		scenarios: chosen, runs: runs, root: root, bin: bin, temp: temp, progress: os.Stderr,
		version: version, measured: func(*Results) error { return nil },
	}, nil
}

func (b *bench) close() error {
	if b.realNode != nil {
		b.realNode.stop()
	}
	return os.RemoveAll(b.temp)
}

// choose returns the scenarios that match one of the patterns, or the set if
// there are no patterns. If candidates are given, they replace those of each
// scenario.
func choose(set string, patterns, candidates []string) ([]Scenario, error) {
	if set != "quick" && set != "full" {
		return nil, fmt.Errorf("unknown set %q: want quick or full", set)
	}
	var wanted []Candidate
	for _, name := range candidates {
		c, err := parseCandidate(name)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, c)
	}
	all := scenarios()
	for _, p := range patterns {
		if !slices.ContainsFunc(all, func(s Scenario) bool { return s.matches(p) }) {
			return nil, fmt.Errorf("no scenario matches %q: the list command shows their names", p)
		}
	}
	var chosen []Scenario
	for _, s := range all {
		if len(wanted) > 0 {
			s.Candidates = wanted
		}
		if slices.ContainsFunc(patterns, s.matches) || len(patterns) == 0 && (s.InQuick || set == "full") {
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}

// matches reports whether a pattern is the name, the group, or a pattern of the name.
func (s Scenario) matches(pattern string) bool {
	ok, _ := filepath.Match(pattern, s.Name)
	return ok || pattern == s.Name || pattern == s.group()
}
