package soak

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// minSamples is how many samples a slope takes to be judged; a short soak only
// compares with the truth.
const minSamples = 10

// Report is what a soak found.
type Report struct {
	Node    string        `json:"node"`
	Seed    uint64        `json:"seed"`
	Elapsed time.Duration `json:"elapsedNS"`
	// Partial is true if the soak was ended before its time.
	Partial bool `json:"partial"`
	// Deeds count what was done to the node.
	Deeds map[string]int `json:"deeds"`
	// Rests is how often everybody was compared with the truth; it took
	// SettledMedian, or SettledMax at most, until all had it.
	Rests         int           `json:"rests"`
	SettledMedian time.Duration `json:"settledMedianNS"`
	SettledMax    time.Duration `json:"settledMaxNS"`
	Agents        []AgentReport `json:"agents"`
	Problems      []string      `json:"problems"`
}

// AgentReport is about one agent.
type AgentReport struct {
	Mode string `json:"mode"`
	// CPUShare is the CPU time for each second of the soak.
	CPUShare    float64            `json:"cpuShare"`
	Figures     []Figure           `json:"figures"`
	Subscribers []SubscriberReport `json:"subscribers"`
	Samples     []Sample           `json:"samples"`
}

// Figure is what became of one measure in the second half of a soak.
type Figure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// First, Min, Max and Last are those of the second half.
	First float64 `json:"first"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	Last  float64 `json:"last"`
	Slope
	// Bound is the greatest slope for an hour.
	Bound float64 `json:"bound"`
	// Judged is false if there are too few samples.
	Judged   bool `json:"judged"`
	Exceeded bool `json:"exceeded"`
}

// SubscriberReport is about one subscriber.
type SubscriberReport struct {
	Name string `json:"name"`
	counts
}

// OK reports whether everything was as it should be.
func (r *Report) OK() bool {
	grows := func(f Figure) bool { return f.Exceeded }
	return len(r.Problems) == 0 && !slices.ContainsFunc(r.Agents, func(a AgentReport) bool { return slices.ContainsFunc(a.Figures, grows) })
}

func (s *soak) report(partial bool) *Report {
	deeds, _ := s.told()
	r := &Report{
		Node: s.node.Name(), Seed: s.Seed, Elapsed: time.Since(s.began), Partial: partial,
		Deeds: deeds, Rests: len(s.settled), Problems: append([]string{}, s.problems...),
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
				of.Subscribers = append(of.Subscribers, SubscriberReport{sub.name, sub.mirror.counts})
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
	fmt.Fprintf(w, "%d rests; until all had the truth: median %v, at most %v\n",
		r.Rests, r.SettledMedian.Round(time.Millisecond), r.SettledMax.Round(time.Millisecond))
	for _, deed := range slices.Sorted(maps.Keys(r.Deeds)) {
		fmt.Fprintf(w, "  %s: %d\n", deed, r.Deeds[deed])
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
