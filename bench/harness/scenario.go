package main

import (
	"context"
	"iter"
	"slices"
	"time"
)

// Scenario is work that every candidate is given.
type Scenario struct {
	Name string
	// Group is the kind of scenario, under which the page shows it.
	Group string
	// Title says in a few words what happens.
	Title      string
	Candidates []Candidate
	// Measure does the work once with one candidate. An error means that the
	// work was not done, and fails the run.
	Measure func(context.Context, *bench, Candidate) (Metrics, error)
	// InQuick is whether the scenario is part of the quick set.
	InQuick bool
	// SideBySide measures all candidates at the same time, each with a node of its
	// own: for what takes minutes and leaves the machine idle.
	SideBySide bool
}

// turns are the candidates that are measured at the same time.
func (s Scenario) turns() iter.Seq[[]Candidate] {
	if s.SideBySide {
		return slices.Chunk(s.Candidates, len(s.Candidates))
	}
	return slices.Chunk(s.Candidates, 1)
}

// Metrics are the figures of one measurement, by [Metric.Key].
type Metrics map[string]float64

// Metric says what a figure means.
type Metric struct {
	Key   string
	Label string
	Unit  string
}

// What is measured. The order is that of the columns.
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
	{"width", "pods at once, in the end", ""},
	{"calls", "status calls per changed pod", ""},
	{"allocs", "allocations", ""},
	{"bytes", "allocated", "KiB"},
	{"rss", "RSS", "MiB"},
	{"missed", "discarded events", ""},
	{"repaired", "repaired by PodSync", ""},
}

// widths are the numbers of inspectors measured.
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

// withFixed adds those of a fixed width, where finding the width is the point.
func withFixed() []Candidate {
	return append(everyone(), fixedOf(4), fixedOf(8), fixedOf(16), fixedOf(32))
}

// relistPeriod is the kubelet's and the pipeline's default.
const relistPeriod = time.Second

// hangTimeout is the deadline of a runtime call where pods hang: what the
// kubelet has is two minutes, of which nothing would be learned.
const hangTimeout = 5 * time.Second

// scenarios returns everything that can be measured.
func scenarios() []Scenario {
	var all []Scenario
	all = append(all, bursts()...)
	all = append(all, singles()...)
	all = append(all, limited()...)
	all = append(all, shifts()...)
	all = append(all, hung()...)
	all = append(all, storms()...)
	all = append(all, restarts()...)
	all = append(all, idles()...)
	all = append(all, churns()...)
	all = append(all, eventful()...)
	return append(all, onContainerd()...)
}
