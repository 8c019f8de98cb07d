package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// comparison is a row of docs/upstream.md: a figure of the kubelet, of the kubelet with the
// small step, and of the kubelet with the drop-in.
type comparison struct {
	what, scenario, metric string
}

// columns are those of the table.
var columns = []Candidate{kubelet, smallStep, dropIn}

const changes10 = "events/change/seconds=10"

// comparisons are the rows of the table.
var comparisons = []comparison{
	{"110 pods change at once: last event (ms)", burst110, "last"},
	{"- the runtime serves 4 (ms)", limited(4), "last"},
	{"- 1 (ms)", limited(1), "last"},
	{"1 of 110 hangs: last event of the others (ms)", "hung/pods=1", "last"},
	{"change to event: p50 (ms)", changes10, "p50"},
}

// reproduce measures what the comparisons need and prints their table. If a page is
// set, its part "upstream" gets it.
func (s settings) reproduce(ctx context.Context) error {
	b, err := newBench(compared(), s)
	if err != nil {
		return err
	}
	r := new(Results)
	if err := errors.Join(b.run(ctx, r), b.close()); err != nil {
		return err
	}
	table := comparisonTable(r)
	fmt.Printf("\n%s", table)
	if s.page == "" {
		return nil
	}
	return refill(s.page, map[string]string{"upstream": table})
}

// compared returns the scenarios of the comparisons, each with those candidates alone.
func compared() []Scenario {
	var chosen []Scenario
	for _, s := range scenarios() {
		s.Candidates = nil
		for _, c := range comparisons {
			if c.scenario == s.Name {
				s.Candidates = columns
			}
		}
		if len(s.Candidates) > 0 {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

func comparisonTable(r *Results) string {
	var b strings.Builder
	b.WriteString("| | kubelet | small step | drop-in |\n|---|---:|---:|---:|\n")
	for _, c := range comparisons {
		cells := []string{c.what}
		for _, candidate := range columns {
			text := ""
			if f, ok := r.figure(c.scenario, candidate, c.metric); ok {
				text = number(f.median())
			}
			cells = append(cells, text)
		}
		b.WriteString(tableRow(cells...))
	}
	return b.String()
}
