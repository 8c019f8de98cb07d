package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scenario is work that every candidate does.
type Scenario struct {
	// Name begins with the group, the section of the results for the scenario.
	Name string
	// Title says in a few words what happens.
	Title      string
	Candidates []Candidate
	// Measure does the work once with one candidate. An error fails the run.
	Measure func(context.Context, *bench, Candidate) (Metrics, error)
	// InQuick makes the scenario part of the quick set.
	InQuick bool
}

// group is the first part of the name.
func (s Scenario) group() string {
	group, _, _ := strings.Cut(s.Name, "/")
	return group
}

// matches reports whether a pattern is the name, the group, or a pattern of the name.
func (s Scenario) matches(pattern string) bool {
	ok, _ := filepath.Match(pattern, s.Name)
	return ok || pattern == s.Name || pattern == s.group()
}

// Metrics are the figures of one measurement. results.md.tmpl says what they mean.
type Metrics map[string]float64

// metrics are the headers of the metrics.
var metrics = map[string]string{
	"last":    "last event (ms)",
	"running": "last event of running pods (ms)",
	"limit":   "limit (ms)",
	"p50":     "change to event, p50 (ms)",
	"p99":     "change to event, p99 (ms)",
	"client":  "client CPU (ms)",
	"server":  "server CPU (ms)",
	"waiting": "peak calls arrived",
	"calls":   "status calls per changed pod",
	"allocs":  "allocations",
}

// The kubelet's relist period and its deadline of a runtime call.
const (
	relistPeriod = time.Second
	callTimeout  = 2 * time.Minute
)

// hangTimeout is the deadline of a runtime call in the scenarios in which calls
// hang. The kubelet's two minutes would only make the benchmark longer.
const hangTimeout = 5 * time.Second

// scenarios returns everything that can be measured.
func scenarios() []Scenario {
	return slices.Concat(bursts(), storms(), restarts(), idles(), churns(), eventful())
}

// choose returns the scenarios that match one of the patterns, or the set if
// there are no patterns.
func choose(set string, patterns []string) ([]Scenario, error) {
	if set != "quick" && set != "full" {
		return nil, fmt.Errorf("unknown set %q: want quick or full", set)
	}
	all := scenarios()
	for _, p := range patterns {
		if !slices.ContainsFunc(all, func(s Scenario) bool { return s.matches(p) }) {
			return nil, fmt.Errorf("no scenario matches %q: the list command shows their names", p)
		}
	}
	return slices.DeleteFunc(all, func(s Scenario) bool {
		if len(patterns) == 0 {
			return set == "quick" && !s.InQuick
		}
		return !slices.ContainsFunc(patterns, s.matches)
	}), nil
}

// Candidate is what is measured: one of the constants, "pipeline-N" with at most N
// status calls in flight, or "events-N", a pipeline-N that follows CRI events.
type Candidate string

// The candidates without a number: the baseline; the kubelet, the kubelet with the change
// of kubelet/upstream, and the kubelet with the pipeline in place of GenericPLEG. "-events"
// is with the gate EventedPLEG on.
const (
	serial        Candidate = "serial"
	kubelet       Candidate = "kubelet"
	kubeletEvents Candidate = "kubelet-events"
	smallStep     Candidate = "small-step"
	dropIn        Candidate = "drop-in"
	dropInEvents  Candidate = "drop-in-events"
)

// usualWidth is the number of inspectors of the drop-in, smallWidth that of inspections at
// once of the small step.
const (
	usualWidth = 16
	smallWidth = 4
)

// candidates are separated by spaces.
func candidates(names string) []Candidate {
	var out []Candidate
	for name := range strings.FieldsSeq(names) {
		out = append(out, Candidate(name))
	}
	return out
}

const (
	allWidths = "pipeline-1 pipeline-2 pipeline-4 pipeline-8 pipeline-16 pipeline-32"
	everyone  = "serial kubelet drop-in " + allWidths
	oneWidth  = "serial kubelet drop-in pipeline-16"
	twoWidths = "serial kubelet drop-in pipeline-8 pipeline-16"
)

// inKubelet reports whether the candidate runs in the kubelet's surroundings.
func (c Candidate) inKubelet() bool {
	return c == kubelet || c == kubeletEvents || c == smallStep || c.isDropIn()
}

func (c Candidate) isDropIn() bool { return c == dropIn || c == dropInEvents }

// events reports whether the pipeline follows CRI events.
func (c Candidate) events() bool { return strings.HasPrefix(string(c), "events-") }

// width is the most status calls the candidate has in flight.
func (c Candidate) width() int {
	switch {
	case c.isDropIn():
		return usualWidth
	case c == smallStep:
		return smallWidth
	}
	_, number, _ := strings.Cut(string(c), "-")
	n, _ := strconv.Atoi(number) // 0 of those that have one call in flight
	return max(1, n)
}
