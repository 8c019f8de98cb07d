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
	// Name begins with the group.
	Name string
	// Candidates are those with a figure in a table.
	Candidates []Candidate
	// Measure does the work once with one candidate. An error fails the run.
	Measure func(context.Context, *bench, Candidate) (Metrics, error)
}

// matches reports whether a pattern is the name, the group, or a pattern of the name.
func (s Scenario) matches(pattern string) bool {
	ok, _ := filepath.Match(pattern, s.Name)
	return ok || pattern == s.Name || strings.HasPrefix(s.Name, pattern+"/")
}

// Metrics are the figures of one measurement:
//
//   - last: from the relist that saw the change to its last event, in ms; running: to that of
//     pods that run; limit: the shortest possible time
//   - p50: the median from a change to its event, in ms
//   - client: CPU time of the client, in ms; allocs: its heap allocations
//   - calls: status calls for each changed pod
type Metrics map[string]float64

// The kubelet's relist period and its deadline of a runtime call.
const (
	relistPeriod = time.Second
	callTimeout  = 2 * time.Minute
)

// hangTimeout is the deadline of a runtime call in the scenarios in which calls
// hang. The kubelet's two minutes would only make the benchmark longer.
const hangTimeout = 5 * time.Second

// The names of scenarios that are in tables more than once.
const (
	burst110     = "burst/profile=node/containers=2/pods=110"
	burstOfOne   = "burst/profile=node/containers=1/pods=110"
	carriedBurst = "carried/profile=node/pods=110/containers=2"
	burst1000    = "burst/profile=zero/containers=2/pods=1000"
	limitedZero  = "limited/profile=zero/pods=1000/limit=8"
	changes10    = "events/change/seconds=10"
	quiet10      = "events/idle/seconds=10"
	coldStart    = "storm/profile=node"
)

// limited is the burst of 110 pods on a runtime that serves this many calls at once.
func limited(calls int) string { return fmt.Sprintf("limited/profile=node/pods=110/limit=%d", calls) }

// scenarios returns everything that can be measured.
func scenarios() (all []Scenario) {
	add := func(name string, period, timeout time.Duration, carried bool, do func(context.Context, *lab) Metrics) {
		all = append(all, Scenario{Name: name, Candidates: candidatesOf(name), Measure: inLab(period, timeout, carried, do)})
	}
	addBurst := func(name string, w burst) {
		timeout := callTimeout
		if w.hung > 0 {
			timeout = hangTimeout
		}
		add(name, relistPeriod, timeout, w.carried, w.measure)
	}
	addBurst(burstOfOne, burst{pods: 110, containers: 1, profile: "node"})
	addBurst(burst110, burst{pods: 110, containers: 2, profile: "node"})
	addBurst(burst1000, burst{pods: 1000, containers: 2, profile: "zero"})
	addBurst(carriedBurst, burst{pods: 110, containers: 2, profile: "node", carried: true})
	for _, calls := range []int{1, 2, 4, 8} {
		addBurst(limited(calls), burst{pods: 110, containers: 2, profile: "node", limit: calls})
	}
	addBurst(limitedZero, burst{pods: 1000, containers: 2, profile: "zero", limit: 8})
	for _, n := range []int{0, 1, 5} {
		addBurst(fmt.Sprintf("hung/pods=%d", n), burst{pods: 110, containers: 2, profile: "node", hung: n})
	}
	add(coldStart, relistPeriod, callTimeout, false, startCold)
	for _, times := range []int{1, 3} {
		add(fmt.Sprintf("restart/n=%d", times), relistPeriod/5, callTimeout, false, restart(times))
	}
	for _, pods := range []int{110, 1000, 5000} {
		add(fmt.Sprintf("idle/pods=%d", pods), idlePeriod, callTimeout, false, idle(pods))
	}
	add(changes10, relistPeriod, callTimeout, false, change)
	add(quiet10, relistPeriod, callTimeout, false, quiet)
	return all
}

// choose returns the scenarios that match one of the patterns, or all if there are none.
func choose(patterns []string) ([]Scenario, error) {
	all := scenarios()
	for _, p := range patterns {
		if !slices.ContainsFunc(all, func(s Scenario) bool { return s.matches(p) }) {
			return nil, fmt.Errorf("no scenario matches %q: docs/dev/benchmarks.md has their names", p)
		}
	}
	return slices.DeleteFunc(all, func(s Scenario) bool {
		return len(patterns) > 0 && !slices.ContainsFunc(patterns, s.matches)
	}), nil
}

// Candidate is the name of a measured generator: one of the constants, "pipeline-N" with N
// inspectors, or "events-N", a pipeline-N that follows CRI events.
type Candidate string

// The candidates without a number: the kubelet, the kubelet with the change of
// kubelet/upstream, and the kubelet with the pipeline in place of GenericPLEG.
const (
	kubelet   Candidate = "kubelet"
	smallStep Candidate = "small-step"
	dropIn    Candidate = "drop-in"
)

// usualWidth is how many pods the drop-in inspects at once, smallWidth how many the small step
// does.
const (
	usualWidth = 16
	smallWidth = 4
)

// events reports whether the pipeline follows CRI events.
func (c Candidate) events() bool { return strings.HasPrefix(string(c), "events-") }

// inspectors is the greatest number of pods that the candidate inspects at once.
func (c Candidate) inspectors() int {
	switch c {
	case kubelet:
		return 1
	case dropIn:
		return usualWidth
	case smallStep:
		return smallWidth
	}
	_, number, _ := strings.Cut(string(c), "-")
	n, _ := strconv.Atoi(number)
	return n
}

// width is the greatest number of status calls in flight.
func (c Candidate) width() int {
	if c == kubelet || c == dropIn || c == smallStep {
		return c.inspectors() // the kubelet's runtime manager asks for one status after the other
	}
	return 2 * c.inspectors()
}
