package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
)

// comparison is a row of docs/dev/upstream.md: a figure of each of the columns.
type comparison struct {
	what, scenario, metric string
}

// columns are those of the table in docs/dev/upstream.md.
var columns = []Candidate{kubelet, smallStep, dropIn}

var comparisons = []comparison{
	{"110 pods change at once: last event (ms)", burst110, "last"},
	{"- the runtime serves 4 (ms)", limited(4), "last"},
	{"- 1 (ms)", limited(1), "last"},
	{"1 of 110 hangs: last event of the others (ms)", "hung/pods=1", "last"},
	{"change to event: p50 (ms)", changes10, "p50"},
}

// candidatesOf returns the candidates with a figure of a scenario in a target or a comparison.
func candidatesOf(scenario string) (all []Candidate) {
	add := func(of string, c Candidate) {
		if of == scenario && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	for _, c := range comparisons {
		for _, candidate := range columns {
			add(c.scenario, candidate)
		}
	}
	for _, t := range targets {
		add(t.against.scenario, t.against.candidate)
		add(t.measured.scenario, t.measured.candidate)
	}
	return all
}

// compared returns the scenarios of the comparisons, each with only the candidates of the columns.
func compared() (chosen []Scenario) {
	for _, s := range scenarios() {
		if slices.ContainsFunc(comparisons, func(c comparison) bool { return c.scenario == s.Name }) {
			s.Candidates = columns
			chosen = append(chosen, s)
		}
	}
	return chosen
}

func comparisonTable(r *Results) string {
	var b strings.Builder
	b.WriteString("| | kubelet | small step | drop-in |\n|---|---:|---:|---:|\n")
	for _, c := range comparisons {
		b.WriteString("| " + c.what)
		for _, candidate := range columns {
			text := ""
			if f, ok := r.figure(c.scenario, candidate, c.metric); ok {
				text = number(f.median())
			}
			b.WriteString(" | " + text)
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// number is written with three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || a == math.Trunc(a):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// provenance says where the figures come from.
func provenance(r *Results) string {
	last := slices.MaxFunc(append(r.Rows, &Row{}), func(a, b *Row) int { return a.Began.Compare(b.Began) })
	return fmt.Sprintf("Last measured on %s, revision %s: %s, %d cores, Linux %s, %s. Figures are medians of all runs.\n",
		last.Began.Format("2006-01-02 15:04 UTC"), cmp.Or(last.Revision, "unknown"), r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.Go)
}

// marked is a generated part of a page.
var marked = regexp.MustCompile(`(?s)(<!-- figures: ([a-z]+) -->\n).*?(<!-- end -->)`)

// report replaces the generated parts of a page, if the page exists.
func report(r *Results, page string) (err error) {
	if page == "" {
		return nil
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	parts := map[string]string{"machine": provenance(r), "targets": targetTable(r), "upstream": comparisonTable(r)}
	filled := marked.ReplaceAllStringFunc(string(text), func(part string) string {
		m := marked.FindStringSubmatch(part)
		content, ok := parts[m[2]]
		if !ok {
			err = fmt.Errorf("report: %s has the unknown part %q", page, m[2])
		}
		return m[1] + "\n" + content + "\n" + m[3]
	})
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(filled), 0o644)
}
