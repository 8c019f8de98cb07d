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

// comparison is a row of docs/upstream.md: the kubelet's figure beside the pipeline's.
type comparison struct {
	what, scenario, metric, unit string
	stock, ours                  Candidate
}

// comparisons are the rows of docs/upstream.md.
var comparisons = slices.Concat(
	burstRows("110 pods change at once", burst110),
	burstRows("the same, the runtime serves 1 call at once", limited(1)),
	burstRows("2 calls at once", limited(2)),
	burstRows("4 calls at once", limited(4)),
	burstRows("8 calls at once", limited(8)),
	[]comparison{
		{"1 of 110 changed pods hangs: last event of the others", "hung/pods=1", "last", "ms", kubelet, "pipeline-16"},
		{"cold start, 2000 exited containers: last event", "storm/profile=node", "last", "ms", kubelet, "pipeline-16"},
		{"third restart of all containers: status calls per pod", "restart/n=3", "calls", "", kubelet, "pipeline-16"},
		{"change to event, without CRI events: p50", changes10, "p50", "ms", kubelet, "pipeline-16"},
		{"change to event, with CRI events: p50", changes10, "p50", "ms", kubeletEvents, "events-16"},
		{"the same: p99", changes10, "p99", "ms", kubeletEvents, "events-16"},
		{"the same: CPU of the client", changes10, "client", "ms", kubeletEvents, "events-16"},
		{"idle relist of 110 pods: CPU of the client", "idle/pods=110", "client", "ms", kubelet, "pipeline-16"},
	},
)

const changes10 = "events/change/seconds=10"

// burstRows are the rows of a burst: its time, and what it costs the runtime.
func burstRows(what, scenario string) []comparison {
	return []comparison{
		{what + ": last event", scenario, "last", "ms", kubelet, "pipeline-16"},
		{"- status calls per changed pod", scenario, "calls", "", kubelet, "pipeline-16"},
		{"- most calls that arrived at the runtime", scenario, "waiting", "", kubelet, "pipeline-16"},
		{"- CPU of the runtime", scenario, "server", "ms", kubelet, "pipeline-16"},
	}
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
	table := comparisonTable(results)
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
			for _, candidate := range []Candidate{c.stock, c.ours} {
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

func comparisonTable(r *Results) string {
	var b strings.Builder
	b.WriteString("| | kubelet | pipeline | ratio |\n|---|---:|---:|---:|\n")
	for _, c := range comparisons {
		o := r.outcome(c.scenario)
		stock, ours := o.figure(c.stock, c.metric), o.figure(c.ours, c.metric)
		what := c.what
		if c.unit != "" {
			what += " (" + c.unit + ")"
		}
		ratio := ""
		if stock != nil && ours != nil && stock.Median > 0 {
			ratio = fmt.Sprintf("%.2g", ours.Median/stock.Median)
		}
		b.WriteString(tableRow(what, stock.String(), ours.String(), ratio))
	}
	return b.String()
}
