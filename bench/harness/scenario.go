package main

import (
	"context"
	"iter"
	"slices"
	"time"
)

// Scenario is work that every candidate does.
type Scenario struct {
	Name string
	// Group is the section of the results that shows the scenario.
	Group string
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

// Metric describes a column of the results. A metric without a meaning is
// clear from its label.
type Metric struct{ Key, Label, Unit, Meaning string }

// metrics are in the order of the columns.
var metrics = []Metric{
	{"first", "first event", "ms", "from the beginning of the relist that saw the change to the arrival at the subscriber; " +
		"the wait for that relist, up to a period of 1 s, is the same for all candidates and left out"},
	{"last", "last event", "ms", "the same for the last event"},
	{"running", "last event of running pods", "ms", "the same for the last event of a running pod"},
	{"limit", "limit", "ms", "one list + the time of all status calls in the runtime / the most status calls in flight: " +
		"no client with as many calls can be faster"},
	{"ratio", "last / limit", "", ""},
	{"p50", "change to event, p50", "ms", ""},
	{"p99", "change to event, p99", "ms", ""},
	{"rate", "events", "1/s", ""},
	{"wall", "wall time", "ms", ""},
	{"client", "client CPU", "ms", "user and system time of the client from the change to the last event"},
	{"server", "server CPU", "ms", "the same of the runtime; on a simulated runtime it is gRPC and little else"},
	{"peak", "peak calls in flight", "", "the most calls that executed at the same time in the runtime, lists included"},
	{"waiting", "peak calls arrived", "", "the same with the calls that waited for the runtime's limit"},
	{"width", "width", "", "how many pods the pipeline inspects at once after the change (`pleg_inspection_width`); " +
		"a pod has several status calls, so N calls at once need fewer than N pods"},
	{"calls", "status calls per changed pod", "", "`PodSandboxStatus` and `ContainerStatus` calls"},
	{"allocs", "allocations", "", "heap allocations of the client in the same time"},
	{"bytes", "allocated", "KiB", ""},
	{"rss", "RSS", "MiB", "resident memory of the client at the end"},
	{"missed", "missed events", "", "events that a subscriber did not get"},
	{"repaired", "repaired by PodSync", "", "the `PodSync` events that replaced them"},
}

// widths are the numbers of inspectors that are measured.
var widths = []int{1, 2, 4, 8, 16, 32}

func pipelines(widths ...int) []Candidate {
	out := make([]Candidate, len(widths))
	for i, w := range widths {
		out[i] = pipelineOf(w)
	}
	return out
}

func everyone() []Candidate {
	return append([]Candidate{serial, kubelet}, pipelines(widths...)...)
}

// withFixed adds pipelines of a fixed width, to compare with the width that is found.
func withFixed() []Candidate {
	return append(everyone(), fixedOf(4), fixedOf(8), fixedOf(16), fixedOf(32))
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
	return slices.Concat(bursts(), singles(), limited(), shifts(), hung(), storms(), restarts(), idles(), churns(),
		eventful(), onContainerd())
}
