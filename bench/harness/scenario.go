package main

import (
	"context"
	"fmt"
	"iter"
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
	// SideBySide measures all candidates at the same time, each with its own node:
	// for scenarios that take minutes and leave the machine idle.
	SideBySide bool
}

// group is the first part of the name.
func (s Scenario) group() string {
	group, _, _ := strings.Cut(s.Name, "/")
	return group
}

// turns groups the candidates that are measured at the same time.
func (s Scenario) turns() iter.Seq[[]Candidate] {
	if s.SideBySide {
		return slices.Chunk(s.Candidates, len(s.Candidates))
	}
	return slices.Chunk(s.Candidates, 1)
}

// Metrics are the figures of one measurement, by [Metric.Key].
type Metrics map[string]float64

func (m Metrics) remove(keys ...string) {
	for _, key := range keys {
		delete(m, key)
	}
}

// Metric is a column of the results. results.md.tmpl says what it means.
type Metric struct{ Key, Label, Unit string }

// metrics are in the order of the columns.
var metrics = []Metric{
	{"first", "first event", "ms"},
	{"last", "last event", "ms"},
	{"running", "last event of running pods", "ms"},
	{"limit", "limit", "ms"},
	{"ratio", "last / limit", ""},
	{"p50", "change to event, p50", "ms"},
	{"p99", "change to event, p99", "ms"},
	{"rate", "events", "1/s"},
	{"wall", "wall time", "ms"},
	{"client", "client CPU", "ms"},
	{"server", "server CPU", "ms"},
	{"peak", "peak calls in flight", ""},
	{"waiting", "peak calls arrived", ""},
	{"width", "width", ""},
	{"calls", "status calls per changed pod", ""},
	{"allocs", "allocations", ""},
	{"bytes", "allocated", "KiB"},
	{"rss", "RSS", "MiB"},
	{"missed", "missed events", ""},
	{"repaired", "repaired by PodSync", ""},
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
	return slices.Concat(bursts(), storms(), restarts(), idles(), churns(), eventful(), onContainerd())
}

// Candidate is what is measured: "serial", "kubelet", "kubelet-events", which is the
// kubelet with the gate EventedPLEG on, "drop-in" and "drop-in-events", which are the
// same with the pipeline in place of GenericPLEG, "calls-only", which is the calls of
// the pipeline and nothing else, "pipeline-N" with at most N
// status calls in flight, or "events-N", a pipeline-N that follows CRI events.
type Candidate string

// The candidates without a number.
const (
	serial        Candidate = "serial"
	kubelet       Candidate = "kubelet"
	kubeletEvents Candidate = "kubelet-events"
	dropIn        Candidate = "drop-in"
	dropInEvents  Candidate = "drop-in-events"
	callsOnly     Candidate = "calls-only"
)

// usualWidth is the number of inspectors of the drop-in, and of calls at once of
// callsOnly.
const usualWidth = 16

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

// parseCandidate returns an error for a name that is not a candidate.
func parseCandidate(name string) (Candidate, error) {
	c := Candidate(name)
	if c == serial || c == callsOnly || c.inKubelet() || c.inspectors() > 0 {
		return c, nil
	}
	return "", fmt.Errorf("unknown candidate %q: want serial, kubelet, kubelet-events, drop-in, drop-in-events, calls-only, pipeline-N, fixed-N or events-N with N of at least 1", name)
}

// inKubelet reports whether the candidate runs in the kubelet's surroundings.
func (c Candidate) inKubelet() bool { return c == kubelet || c == kubeletEvents || c.isDropIn() }

func (c Candidate) isDropIn() bool { return c == dropIn || c == dropInEvents }

// inspectors returns the number in the name, and 0 if there is none.
func (c Candidate) inspectors() int {
	kind, number, _ := strings.Cut(string(c), "-")
	if kind != "pipeline" && kind != "fixed" && kind != "events" {
		return 0
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// fixed reports whether the pipeline always uses all its inspectors.
func (c Candidate) fixed() bool { return strings.HasPrefix(string(c), "fixed-") }

// events reports whether the pipeline follows CRI events.
func (c Candidate) events() bool { return strings.HasPrefix(string(c), "events-") }

// findsWidth reports whether the pipeline adapts its width to the runtime.
func (c Candidate) findsWidth() bool { return c.width() > 1 && !c.fixed() && c != callsOnly }

// width is the most status calls the candidate has in flight.
func (c Candidate) width() int {
	if c.isDropIn() || c == callsOnly {
		return usualWidth
	}
	return max(1, c.inspectors())
}
