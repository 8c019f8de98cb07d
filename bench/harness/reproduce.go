package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// comparison is a row of docs/upstream.md: a figure of the kubelet, of the kubelet with the
// small step, and of the kubelet with the drop-in.
type comparison struct {
	what, scenario, metric string
	candidates             []Candidate
}

var (
	polling   = []Candidate{kubelet, smallStep, dropIn}
	following = []Candidate{kubeletEvents, smallStepEvents, dropInEvents}
)

const changes10 = "events/change/seconds=10"

// comparisons are the rows of the table.
var comparisons = []comparison{
	{"110 pods change at once: last event (ms)", burst110, "last", polling},
	{"- the runtime serves 8 calls at once (ms)", limited(8), "last", polling},
	{"- 4 calls at once (ms)", limited(4), "last", polling},
	{"- 2 calls at once (ms)", limited(2), "last", polling},
	{"- 1 call at once (ms)", limited(1), "last", polling},
	{"1 of 110 changed pods hangs: last event of the others (ms)", "hung/pods=1", "last", polling},
	{"cold start, 2000 exited containers: last event (ms)", "storm/profile=node", "last", polling},
	{"third restart of all containers: status calls per pod", "restart/n=3", "calls", polling},
	{"change to event: p50 (ms)", changes10, "p50", polling},
	{"- p99 (ms)", changes10, "p99", polling},
	{"change to event, with CRI events: p50 (ms)", changes10, "p50", following},
	{"- p99 (ms)", changes10, "p99", following},
	{"- CPU of the client (ms)", changes10, "client", following},
	{"idle relist of 110 pods: CPU of the client (ms)", "idle/pods=110", "client", polling},
}

// loads are the bursts of the table of what they cost the runtime.
var loads = []struct{ what, scenario string }{
	{"any number of calls at once", burst110},
	{"8 calls at once", limited(8)},
	{"4 calls at once", limited(4)},
	{"2 calls at once", limited(2)},
	{"1 call at once", limited(1)},
}

// reproduce measures what the comparisons need and prints their tables. If a page is
// set, its part "upstream" gets them.
func (s settings) reproduce(ctx context.Context) error {
	b, err := newBench(compared(), s)
	if err != nil {
		return err
	}
	r := new(Results)
	if err := errors.Join(b.run(ctx, r), b.close()); err != nil {
		return err
	}
	tables := comparisonTable(r) + "\n" + loadTable(r)
	fmt.Printf("\n%s", tables)
	if s.page == "" {
		return nil
	}
	return refill(s.page, map[string]string{"upstream": tables, "machine": provenance(r) + ranges})
}

const ranges = "Parentheses hold the least and the greatest value if they differ by more than a tenth of the median.\n"

// compared returns the scenarios of the comparisons, each with those candidates alone.
func compared() []Scenario {
	var chosen []Scenario
	for _, s := range scenarios() {
		s.Candidates = nil
		for _, c := range comparisons {
			if c.scenario == s.Name {
				s.Candidates = append(s.Candidates, c.candidates...)
			}
		}
		if slices.Sort(s.Candidates); len(s.Candidates) > 0 {
			s.Candidates = slices.Compact(s.Candidates)
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
		for _, candidate := range c.candidates {
			text := ""
			if f, ok := r.figure(c.scenario, candidate, c.metric); ok {
				text = f.String()
			}
			cells = append(cells, text)
		}
		b.WriteString(tableRow(cells...))
	}
	return b.String()
}

// loadTable has what the bursts cost the runtime: status calls for each changed pod, the
// most calls that arrived at once, and CPU time.
func loadTable(r *Results) string {
	var b strings.Builder
	b.WriteString("| the runtime serves | kubelet | small step | drop-in |\n|---|---|---|---|\n")
	for _, l := range loads {
		cells := []string{l.what}
		for _, c := range polling {
			text := ""
			if row := r.row(l.scenario, c); row != nil {
				m := row.Metrics
				text = fmt.Sprintf("%s a pod, %s at once, %s ms", number(m["calls"].median()), number(m["waiting"].median()), number(m["server"].median()))
			}
			cells = append(cells, text)
		}
		b.WriteString(tableRow(cells...))
	}
	return b.String()
}
