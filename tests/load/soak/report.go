package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
)

// report judges what was measured and prints all that was found. It is partial if the soak
// ended early.
func (s *soak) report(w io.Writer, partial bool) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, d := range s.daemons {
		s.reportDaemon(table, d)
	}
	outcome := "ok"
	if len(s.Problems()) > 0 {
		outcome = "FAILED"
	}
	if partial {
		outcome += " (partial)"
	}
	_ = table.Flush()
	fmt.Fprintf(w, "\nsoak: %s after %v, seed %d\n", outcome, s.Elapsed().Round(time.Second), s.seed)
	fmt.Fprintf(w, "%d rests; time until all had the truth: median %v, at most %v\n",
		len(s.settled), s.settled.Quantile(0.5).Round(time.Millisecond), s.settled.Quantile(1).Round(time.Millisecond))
	actions := s.Actions()
	for _, action := range slices.Sorted(maps.Keys(actions)) {
		fmt.Fprintf(w, "  %s: %d\n", action, actions[action])
	}
	for _, p := range s.Problems() {
		fmt.Fprintf(w, "PROBLEM: %s\n", p)
	}
}

// reportDaemon prints what a daemon used in the second half, and what its subscribers got.
func (s *soak) reportDaemon(table *tabwriter.Writer, d *daemon.Daemon) {
	samples := s.samples[d]
	if n := len(samples); n > 0 {
		fmt.Fprintf(table, "\ndaemon (%s), CPU %.1f %% of a core\n", d.Name, 100*samples[n-1].metrics["process_cpu_seconds_total"]/samples[n-1].at.Seconds())
	}
	fmt.Fprintln(table, "measure\tfirst\tmost\tlast\tslope per hour\tbound\t")
	for _, f := range figures(samples) {
		verdict := ""
		switch {
		case !f.judged:
			verdict = "too few samples"
		case f.exceeded:
			verdict = "EXCEEDED"
			s.Problem("daemon (%s): %s grows by %.2f ± %.2f %s an hour, more than %g", d.Name, f.name, f.perHour, f.stdErr, f.unit, f.bound)
		}
		fmt.Fprintf(table, "%s %s\t%.4g\t%.4g\t%.4g\t%+.2f ± %.2f\t%g\t%s\n", f.name, f.unit, f.first, f.most, f.last, f.perHour, f.stdErr, f.bound, verdict)
	}
	fmt.Fprintln(table, "\nsubscriber\tevents\tmissed\tgaps\tvisits\tlost connections\tcompared\t")
	for _, sub := range s.subscribers {
		if sub.daemon == d {
			sub.report(table)
		}
	}
}

func (s *soak) progress(ctx context.Context) string {
	actions := 0
	for _, n := range s.Actions() {
		actions += n
	}
	_, rests, _ := s.phase.now()
	var text strings.Builder
	fmt.Fprintf(&text, "soak: %v of %v, %d actions, %d rests, %d problems",
		s.Elapsed().Round(time.Second), s.duration, actions, rests, len(s.Problems()))
	for _, d := range s.daemons {
		now, err := s.sample(ctx, d)
		if err != nil {
			fmt.Fprintf(&text, "; %s: %v", d.Name, err)
			continue
		}
		fmt.Fprintf(&text, "; %s: %.0f events, CPU %.1f s", d.Name, now.metrics["pleg_events_total"], now.metrics["process_cpu_seconds_total"])
		for _, m := range measures {
			fmt.Fprintf(&text, ", %s %.4g %s", m.name, now.metrics[m.metric]/m.units, m.unit)
		}
	}
	return text.String()
}
