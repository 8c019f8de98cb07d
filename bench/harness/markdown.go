package main

import (
	"fmt"
	"math"
	"strings"
)

// table renders the figures of one scenario: medians, and the least and the
// greatest value where they differ by more than a tenth.
func table(o *Outcome) string {
	var used []Metric
	for _, m := range metrics {
		for _, r := range o.Rows {
			if f := r.Metrics[m.Key]; f != nil && f.Max != 0 {
				used = append(used, m)
				break
			}
		}
	}
	var b strings.Builder
	b.WriteString("| candidate |")
	for _, m := range used {
		b.WriteString(" " + m.header() + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(used)) + "\n")
	for _, r := range o.Rows {
		fmt.Fprintf(&b, "| %s |", r.Candidate)
		for _, m := range used {
			b.WriteString(" " + r.Metrics[m.Key].String() + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (m Metric) header() string {
	if m.Unit == "" {
		return m.Label
	}
	return m.Label + " (" + m.Unit + ")"
}

// String returns the median, with the range if it is wide.
func (f *Figure) String() string {
	if f == nil {
		return ""
	}
	s := number(f.Median)
	if f.Max-f.Min > f.Median/10 && number(f.Min) != number(f.Max) {
		s += " (" + number(f.Min) + " - " + number(f.Max) + ")"
	}
	return s
}

// number has three digits that count.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 1e5:
		return fmt.Sprintf("%.0f k", v/1e3)
	case a >= 100 || a == math.Trunc(a):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// markdown renders everything measured.
func markdown(r *Results) string {
	var b strings.Builder
	b.WriteString("# Results\n\n" + provenance(r) + "\n")
	for _, o := range r.Scenarios {
		fmt.Fprintf(&b, "## %s\n\n%s.\n\n%s\n", o.Name, o.caption(), table(o))
	}
	if len(r.Steps) > 0 {
		b.WriteString("## Single steps\n\n" + stepTable(r.Steps))
	}
	return b.String()
}

// caption says what was measured, how often, when, and of which revision.
func (o *Outcome) caption() string {
	when := o.Began.UTC().Format("2006-01-02 15:04 UTC")
	if o.Of.Revision != "" {
		when += ", revision " + o.Of.Revision
	}
	return fmt.Sprintf("%s (%d runs, %s)", o.Title, o.runs(), when)
}

// provenance says where the figures come from.
func provenance(r *Results) string {
	last := r.Began
	for _, o := range r.Scenarios {
		if o.Began.After(last) {
			last = o.Began
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Last measured on %s: %s, %d cores, %s of memory, Linux %s, %s. Figures are medians of all runs; "+
		"in parentheses the least and the greatest where they are further apart than a tenth.\n",
		last.UTC().Format("2006-01-02 15:04 UTC"), r.Machine.CPU, r.Machine.Cores,
		r.Machine.Memory, r.Machine.Kernel, r.Machine.Go)
	for _, why := range []string{r.Partial, r.StepsPartial} {
		if why != "" {
			fmt.Fprintf(&b, "\n**Partial**: %s.\n", why)
		}
	}
	return b.String()
}
