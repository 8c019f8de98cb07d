package load

import (
	"context"
	"encoding/json"
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

// Report is what a soak found.
type Report struct {
	Node    string        `json:"node"`
	Seed    uint64        `json:"seed"`
	Elapsed time.Duration `json:"elapsedNS"`
	// Partial: the soak ended early.
	Partial bool `json:"partial"`
	// Actions are the numbers of changes and faults of the node.
	Actions map[string]int `json:"actions"`
	// Rests is the number of comparisons with the truth. SettledMedian and SettledMax
	// are the times until all daemons and subscribers had it.
	Rests         int            `json:"rests"`
	SettledMedian time.Duration  `json:"settledMedianNS"`
	SettledMax    time.Duration  `json:"settledMaxNS"`
	Daemons       []DaemonReport `json:"daemons"`
	Problems      []string       `json:"problems"`
}

// DaemonReport is the report of one daemon.
type DaemonReport struct {
	Mode string `json:"mode"`
	// CPUShare is the CPU time per second of the soak.
	CPUShare    float64            `json:"cpuShare"`
	Figures     []Figure           `json:"figures"`
	Subscribers []SubscriberReport `json:"subscribers"`
	Samples     []Sample           `json:"samples"`
}

// SubscriberReport is the report of one subscriber.
type SubscriberReport struct {
	Name string `json:"name"`
	counts
}

func (s *soak) report(partial bool) *Report {
	r := &Report{
		Node: s.name, Seed: s.Seed, Partial: partial, Actions: s.Actions(), Rests: len(s.settled),
		SettledMedian: s.settled.Quantile(0.5), SettledMax: s.settled.Quantile(1),
	}
	for _, d := range s.daemons {
		of := DaemonReport{Mode: d.Name, Samples: s.samples[d], Figures: figures(s.samples[d])}
		if n := len(of.Samples); n > 0 {
			of.CPUShare = of.Samples[n-1].CPUSeconds / of.Samples[n-1].At.Seconds()
		}
		for _, sub := range s.subscribers {
			if sub.daemon == d {
				of.Subscribers = append(of.Subscribers, SubscriberReport{sub.name, sub.report()})
			}
		}
		for _, f := range of.Figures {
			s.Require(!f.Exceeded, "daemon (%s): %s grows by %.2f ± %.2f %s an hour, more than %g", d.Name, f.Name, f.PerHour, f.StdErr, f.Unit, f.Bound)
		}
		r.Daemons = append(r.Daemons, of)
	}
	r.Elapsed, r.Problems = s.Elapsed(), s.Problems()
	return r
}

// Print writes the report as tables for people.
func (r *Report) Print(w io.Writer) {
	outcome := "ok"
	if len(r.Problems) > 0 {
		outcome = "FAILED"
	}
	if r.Partial {
		outcome += " (partial)"
	}
	fmt.Fprintf(w, "\n%s: %s after %v, seed %d\n", r.Node, outcome, r.Elapsed.Round(time.Second), r.Seed)
	fmt.Fprintf(w, "%d rests; time until all had the truth: median %v, at most %v\n",
		r.Rests, r.SettledMedian.Round(time.Millisecond), r.SettledMax.Round(time.Millisecond))
	for _, action := range slices.Sorted(maps.Keys(r.Actions)) {
		fmt.Fprintf(w, "  %s: %d\n", action, r.Actions[action])
	}
	for _, d := range r.Daemons {
		d.print(w)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "PROBLEM: %s\n", p)
	}
}

func (d DaemonReport) print(w io.Writer) {
	fmt.Fprintf(w, "\ndaemon (%s), CPU %.1f %% of a core; the second half:\n", d.Mode, 100*d.CPUShare)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "measure\tfirst\tmin\tmax\tlast\tslope per hour\tbound\t")
	for _, f := range d.Figures {
		verdict := ""
		switch {
		case !f.Judged:
			verdict = "too few samples"
		case f.Exceeded:
			verdict = "EXCEEDED"
		}
		fmt.Fprintf(table, "%s %s\t%.4g\t%.4g\t%.4g\t%.4g\t%+.2f ± %.2f\t%g\t%s\n",
			f.Name, f.Unit, f.First, f.Min, f.Max, f.Last, f.PerHour, f.StdErr, f.Bound, verdict)
	}
	fmt.Fprintln(table, "\nsubscriber\tevents\tmissed\trepairs\tgaps\tvisits\tlost connections\tcompared\t")
	for _, s := range d.Subscribers {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", s.Name, s.Events, s.Missed, s.Repairs, s.Gaps, s.Visits, s.Breaks, s.Compared)
	}
	_ = table.Flush()
}

func (s *soak) progress(ctx context.Context) string {
	actions := 0
	for _, n := range s.Actions() {
		actions += n
	}
	_, rests, _ := s.phase.now()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v of %v, %d actions, %d rests, %d problems",
		s.name, s.Elapsed().Round(time.Second), s.Duration, actions, rests, len(s.Problems()))
	for _, d := range s.daemons {
		now, err := d.sample(ctx, s.Run)
		if err != nil {
			fmt.Fprintf(&b, "; %s: %v", d.Name, err)
			continue
		}
		fmt.Fprintf(&b, "; %s: %.0f events, %.0f discarded, heap %.1f MiB, %.0f goroutines, %.0f fds, RSS %.0f MiB, CPU %.1f s",
			d.Name, now.Events, now.Discarded, MiB(now.HeapBytes), now.Goroutines, now.FDs, MiB(now.RSSBytes), now.CPUSeconds)
	}
	return b.String()
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
	out := flag.String("out", "", "file for the report as JSON")
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
		report, err := Soak(ctx, r, node, o)
		err = errors.Join(err, end(ctx))
		if report == nil {
			return err
		}
		report.Print(os.Stdout)
		return errors.Join(err, report.save(*out))
	})
}

func (r *Report) save(path string) error {
	if path == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	return os.WriteFile(path, append(data, '\n'), 0o600)
}
