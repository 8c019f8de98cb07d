package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// comparison is a row of docs/upstream.md: a figure of the kubelet, of the kubelet with
// the drop-in, and of the pipeline with its own CRI client.
type comparison struct {
	what, scenario, metric, unit string
	candidates                   [3]Candidate
}

var (
	polling   = [3]Candidate{kubelet, dropIn, "pipeline-16"}
	following = [3]Candidate{kubeletEvents, dropInEvents, "events-16"}
)

const changes10 = "events/change/seconds=10"

// comparisons are the rows of the table.
var comparisons = []comparison{
	{"110 pods change at once: last event", burst110, "last", "ms", polling},
	{"- the runtime serves 8 calls at once", limited(8), "last", "ms", polling},
	{"- 4 calls at once", limited(4), "last", "ms", polling},
	{"- 2 calls at once", limited(2), "last", "ms", polling},
	{"- 1 call at once", limited(1), "last", "ms", polling},
	{"1 of 110 changed pods hangs: last event of the others", "hung/pods=1", "last", "ms", polling},
	{"cold start, 2000 exited containers: last event", "storm/profile=node", "last", "ms", polling},
	{"third restart of all containers: status calls per pod", "restart/n=3", "calls", "", polling},
	{"change to event: p50", changes10, "p50", "ms", polling},
	{"- p99", changes10, "p99", "ms", polling},
	{"change to event, with CRI events: p50", changes10, "p50", "ms", following},
	{"- p99", changes10, "p99", "ms", following},
	{"- CPU of the client", changes10, "client", "ms", following},
	{"idle relist of 110 pods: CPU of the client", "idle/pods=110", "client", "ms", polling},
}

// loads are the bursts of the table of what they cost the runtime.
var loads = []struct{ what, scenario string }{
	{"any number of calls at once", burst110},
	{"8 calls at once", limited(8)},
	{"4 calls at once", limited(4)},
	{"2 calls at once", limited(2)},
	{"1 call at once", limited(1)},
}

func reproduceCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "reproduce", Short: "Measure and print the table of docs/upstream.md", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.reproduce(cmd.Context()) },
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&f.runs, "runs", 2, "number of runs of each scenario")
	return cmd
}

// reproduce measures what the comparisons need and prints their table. If a page is
// set, its part "upstream" gets the table.
func (f runFlags) reproduce(ctx context.Context) error {
	b, err := newBench(compared(), f.runs, f.root, f.bin)
	if err != nil {
		return err
	}
	results, err := b.run(ctx)
	if err := errors.Join(err, b.close()); err != nil {
		return err
	}
	table := comparisonTable(results) + "\n" + loadTable(results)
	fmt.Printf("\n%s", table)
	if f.page == "" {
		return nil
	}
	text, err := os.ReadFile(f.page)
	if err != nil {
		return fmt.Errorf("reproduce: %w", err)
	}
	return fill(f.page, string(text), map[string]string{"upstream": table, "machine": provenance(results)})
}

// compared returns the scenarios of the comparisons, each with those candidates alone.
func compared() []Scenario {
	var chosen []Scenario
	for _, s := range scenarios() {
		s.Candidates = nil
		for _, c := range comparisons {
			if c.scenario != s.Name {
				continue
			}
			for _, candidate := range c.candidates {
				if !slices.Contains(s.Candidates, candidate) {
					s.Candidates = append(s.Candidates, candidate)
				}
			}
		}
		if len(s.Candidates) > 0 {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// comparisonTable has the ratio of the drop-in to the kubelet.
func comparisonTable(r *Results) string {
	var b strings.Builder
	b.WriteString("| | kubelet | drop-in | ratio | pipeline | `SCENARIO=` |\n|---|---:|---:|---:|---:|---|\n")
	for _, c := range comparisons {
		o := r.outcome(c.scenario)
		stock, ours, alone := o.figure(c.candidates[0], c.metric), o.figure(c.candidates[1], c.metric), o.figure(c.candidates[2], c.metric)
		what := c.what
		if c.unit != "" {
			what += " (" + c.unit + ")"
		}
		ratio := ""
		if stock != nil && ours != nil && stock.Median > 0 {
			ratio = fmt.Sprintf("%.2g", ours.Median/stock.Median)
		}
		b.WriteString(tableRow(what, stock.String(), ours.String(), ratio, alone.String(), "`"+c.scenario+"`"))
	}
	return b.String()
}

// loadTable has what the bursts cost the runtime: status calls for each changed pod, the
// most calls that arrived at once, and CPU time.
func loadTable(r *Results) string {
	var b strings.Builder
	b.WriteString("| the runtime serves | kubelet | drop-in | pipeline |\n|---|---|---|---|\n")
	for _, l := range loads {
		cells := []string{l.what}
		for _, c := range polling {
			o, cell := r.outcome(l.scenario), ""
			if calls, most, cpu := o.figure(c, "calls"), o.figure(c, "waiting"), o.figure(c, "server"); calls != nil && most != nil && cpu != nil {
				cell = fmt.Sprintf("%s a pod, %s at once, %s ms", number(calls.Median), number(most.Median), number(cpu.Median))
			}
			cells = append(cells, cell)
		}
		b.WriteString(tableRow(cells...))
	}
	return b.String()
}
