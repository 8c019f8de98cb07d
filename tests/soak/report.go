package soak

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// minSamples is the least number of samples to judge a slope. A shorter soak only compares
// with the truth.
const minSamples = 10

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
	// are the times until all agents and subscribers had it.
	Rests         int           `json:"rests"`
	SettledMedian time.Duration `json:"settledMedianNS"`
	SettledMax    time.Duration `json:"settledMaxNS"`
	Agents        []AgentReport `json:"agents"`
	Problems      []string      `json:"problems"`
}

// AgentReport is the report of one agent.
type AgentReport struct {
	Mode string `json:"mode"`
	// CPUShare is the CPU time per second of the soak.
	CPUShare    float64            `json:"cpuShare"`
	Figures     []Figure           `json:"figures"`
	Subscribers []SubscriberReport `json:"subscribers"`
	Samples     []Sample           `json:"samples"`
}

// Figure is one measure in the second half of a soak.
type Figure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// First, Min, Max and Last are those of the second half.
	First float64 `json:"first"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	Last  float64 `json:"last"`
	Slope
	// Bound is the greatest slope per hour.
	Bound float64 `json:"bound"`
	// Judged is false if there are too few samples.
	Judged   bool `json:"judged"`
	Exceeded bool `json:"exceeded"`
}

// SubscriberReport is the report of one subscriber.
type SubscriberReport struct {
	Name string `json:"name"`
	counts
}

// OK reports whether there was no problem and no slope above its bound.
func (r *Report) OK() bool {
	grows := func(f Figure) bool { return f.Exceeded }
	return len(r.Problems) == 0 && !slices.ContainsFunc(r.Agents, func(a AgentReport) bool { return slices.ContainsFunc(a.Figures, grows) })
}

func (s *soak) report(partial bool) *Report {
	actions, _ := s.actionCounts()
	r := &Report{
		Node: s.node.Name(), Seed: s.Seed, Elapsed: time.Since(s.began), Partial: partial,
		Actions: actions, Rests: len(s.settled), Problems: append([]string{}, s.problems...),
	}
	if len(s.settled) > 0 {
		sorted := slices.Sorted(slices.Values(s.settled))
		r.SettledMedian, r.SettledMax = sorted[len(sorted)/2], sorted[len(sorted)-1]
	}
	for i, a := range s.agents {
		of := AgentReport{Mode: a.mode, Samples: s.samples[i], Figures: figures(s.samples[i])}
		if n := len(of.Samples); n > 0 {
			of.CPUShare = of.Samples[n-1].CPUSeconds / of.Samples[n-1].At.Seconds()
		}
		for _, sub := range s.subscribers {
			if sub.agent == a {
				of.Subscribers = append(of.Subscribers, SubscriberReport{sub.name, sub.view.report()})
			}
		}
		r.Agents = append(r.Agents, of)
	}
	return r
}

// figures fits a line to the second half of the samples, for each measure.
func figures(samples []Sample) []Figure {
	half := samples[len(samples)/2:]
	if len(half) == 0 {
		return nil
	}
	var all []Figure
	for _, m := range measures {
		var at []time.Duration
		var values []float64
		for _, s := range half {
			at, values = append(at, s.At), append(values, m.of(s))
		}
		slope, judged := fit(at, values), len(half) >= minSamples
		all = append(all, Figure{
			Name: m.name, Unit: m.unit, Slope: slope, Bound: m.bound, Judged: judged, Exceeded: judged && slope.Exceeds(m.bound),
			First: values[0], Min: slices.Min(values), Max: slices.Max(values), Last: values[len(values)-1],
		})
	}
	return all
}

// Print writes the report as tables for people.
func (r *Report) Print(w io.Writer) {
	outcome := "ok"
	if !r.OK() {
		outcome = "FAILED"
	}
	if r.Partial {
		outcome += " (partial)"
	}
	fmt.Fprintf(w, "\nsoak %s: %s after %v, seed %d\n", r.Node, outcome, r.Elapsed.Round(time.Second), r.Seed)
	fmt.Fprintf(w, "%d rests; time until all had the truth: median %v, at most %v\n",
		r.Rests, r.SettledMedian.Round(time.Millisecond), r.SettledMax.Round(time.Millisecond))
	for _, action := range slices.Sorted(maps.Keys(r.Actions)) {
		fmt.Fprintf(w, "  %s: %d\n", action, r.Actions[action])
	}
	for _, a := range r.Agents {
		a.print(w)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "PROBLEM: %s\n", p)
	}
}

func (a AgentReport) print(w io.Writer) {
	fmt.Fprintf(w, "\nagent (%s), CPU %.1f %% of a core; the second half:\n", a.Mode, 100*a.CPUShare)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "measure\tfirst\tmin\tmax\tlast\tslope per hour\tbound\t")
	for _, f := range a.Figures {
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
	_ = table.Flush()
	table = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "subscriber\tevents\tmissed\trepairs\tgaps\tvisits\tlost connections\tcompared\t")
	for _, s := range a.Subscribers {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", s.Name, s.Events, s.Missed, s.Repairs, s.Gaps, s.Visits, s.Breaks, s.Compared)
	}
	_ = table.Flush()
}

// progress writes a line every progressPeriod until ctx ends.
func (s *soak) progress(ctx context.Context) {
	ticker := time.NewTicker(progressPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprintln(s.Out, s.line(ctx))
		case <-ctx.Done():
			return
		}
	}
}

func (s *soak) line(ctx context.Context) string {
	_, actions := s.actionCounts()
	_, rests, _ := s.phase.now()
	var b strings.Builder
	fmt.Fprintf(&b, "soak %s: %v of %v, %d actions, %d rests, %d problems",
		s.node.Name(), time.Since(s.began).Round(time.Second), s.Duration, actions, rests, s.failures())
	for _, a := range s.agents {
		now, err := s.measure(ctx, a)
		if err != nil {
			fmt.Fprintf(&b, "; %s: %v", a.mode, err)
			continue
		}
		fmt.Fprintf(&b, "; %s: %.0f events, %.0f discarded, heap %.1f MiB, %.0f goroutines, %.0f fds, RSS %.0f MiB, CPU %.1f s",
			a.mode, now.Events, now.Discarded, mib(now.HeapBytes), now.Goroutines, now.FDs, mib(now.RSSBytes), now.CPUSeconds)
	}
	return b.String()
}
