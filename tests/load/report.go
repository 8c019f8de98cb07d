package load

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
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
	fmt.Fprintf(w, "\n%s: %s after %v, seed %d\n", s.name, outcome, s.Elapsed().Round(time.Second), s.Seed)
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
func (s *soak) reportDaemon(table *tabwriter.Writer, d *Daemon) {
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
	fmt.Fprintln(table, "\nsubscriber\tevents\tmissed\trepairs\tgaps\tvisits\tlost connections\tcompared\t")
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
	fmt.Fprintf(&text, "%s: %v of %v, %d actions, %d rests, %d problems",
		s.name, s.Elapsed().Round(time.Second), s.Duration, actions, rests, len(s.Problems()))
	for _, d := range s.daemons {
		now, err := d.sample(ctx, s.Run)
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

// SoakMain is a command that soaks the program beside a node, with the arguments of this
// process. It returns its exit code: 0 if there was no problem. On Ctrl-C the report is
// partial. start gets the seed for the node, and returns the node and a function that ends
// it.
func SoakMain(name string, start func(ctx context.Context, seed uint64) (Node, func(context.Context) error, error)) int {
	o := SoakOptions{Out: os.Stderr}
	flag.DurationVar(&o.Duration, "duration", 30*time.Minute, "duration of the soak")
	flag.DurationVar(&o.RestEvery, "rest-every", 20*time.Second, "time between two comparisons with the truth")
	flag.StringVar(&o.Program, "program", "bin/pleg-pipeline", "path of the program")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "seed of the random changes and faults")
	flag.Parse()
	if flag.NArg() > 0 || o.Duration <= 0 || o.RestEvery <= 0 {
		fmt.Fprintln(os.Stderr, "soak: no arguments allowed; -duration and -rest-every must be positive")
		return 2
	}
	return Main(NewRun("soak "+name, os.Stderr), func(ctx context.Context, r *Run) error {
		node, end, err := start(ctx, o.Seed)
		if err != nil {
			return err
		}
		return errors.Join(Soak(ctx, r, node, o), end(ctx))
	})
}
