package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// shown are the metrics of each group in the summary.
var shown = map[string][]string{
	"burst": {"last", "client"}, "carried": {"last", "calls"}, "single": {"last"}, "limited": {"last"}, "hung": {"last"},
	"storm": {"last", "running"}, "restart": {"calls"}, "idle": {"client", "allocs"}, "churn": {"p50", "client"},
	"events": {"p50", "client"},
}

// section is the table of a group: the medians of its metrics, one row for each scenario
// and metric.
func section(r *Results, group string) string {
	in := []string{""} // the candidates of the group
	for _, row := range r.Rows {
		if strings.HasPrefix(row.Scenario, group+"/") && !slices.Contains(in, string(row.Candidate)) {
			in = append(in, string(row.Candidate))
		}
	}
	if len(in) == 1 {
		return "Not measured: `make bench-full` does.\n"
	}
	var b strings.Builder
	b.WriteString(tableRow(in...) + "|---|" + strings.Repeat("---:|", len(in)-1) + "\n")
	for _, s := range scenarios() {
		for _, metric := range shown[group] {
			cells := []string{"`" + s.Name + "`: " + metrics[metric]}
			for _, c := range in[1:] {
				text := ""
				if f, ok := r.figure(s.Name, Candidate(c), metric); ok {
					text = number(f.median())
				}
				cells = append(cells, text)
			}
			if s.group() == group && strings.Join(cells[1:], "") != "" {
				b.WriteString(tableRow(cells...))
			}
		}
	}
	return b.String()
}

func tableRow(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// number has three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
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

// provenance says where the figures come from.
func provenance(r *Results) string {
	last := slices.MaxFunc(append(r.Rows, &Row{}), func(a, b *Row) int { return a.Began.Compare(b.Began) })
	return fmt.Sprintf("Last measured on %s, revision %s: %s, %d cores, Linux %s, %s. Figures are medians of all runs.\n",
		last.Began.Format("2006-01-02 15:04 UTC"), cmp.Or(last.Revision, "unknown"), r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.Go)
}

// template is the summary without its generated parts.
//
//go:embed results.md.tmpl
var template string

// resultsName is the summary beside resultsFile.
const resultsName = "results.md"

// report writes everything that follows from the results in dir: the tables, and the
// generated parts of the page.
func report(r *Results, dir, page string) error {
	parts := map[string]string{"machine": provenance(r)}
	for group := range shown {
		parts[group] = section(r, group)
	}
	if err := fill(filepath.Join(dir, resultsName), template, parts); err != nil || page == "" {
		return err
	}
	parts["targets"] = targetTable(r)
	return refill(page, parts)
}

// refill replaces the generated parts of a page.
func refill(page string, parts map[string]string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return fill(page, string(text), parts)
}

// marked is a generated part of a page.
var marked = regexp.MustCompile(`(?s)(<!-- figures: ([a-z]+) -->\n).*?(<!-- end -->)`)

// fill writes a file with the text and its generated parts.
func fill(file, text string, parts map[string]string) (err error) {
	text = marked.ReplaceAllStringFunc(text, func(part string) string {
		m := marked.FindStringSubmatch(part)
		content, ok := parts[m[2]]
		if !ok {
			err = fmt.Errorf("fill %s: unknown part %q", file, m[2])
		}
		return m[1] + "\n" + content + "\n" + m[3]
	})
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
