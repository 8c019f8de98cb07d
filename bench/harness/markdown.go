package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// table renders the figures of one scenario: medians, with the range where it
// is wider than a tenth of the median.
func table(o *Outcome) string {
	used := o.metrics()
	head := []string{"candidate"}
	for _, m := range used {
		head = append(head, m.header())
	}
	var text strings.Builder
	text.WriteString(tableRow(head...) + "|---|" + strings.Repeat("---:|", len(used)) + "\n")
	for _, r := range o.Rows {
		cells := []string{string(r.Candidate)}
		for _, m := range used {
			cells = append(cells, r.Metrics[m.Key].String())
		}
		text.WriteString(tableRow(cells...))
	}
	return text.String()
}

func tableRow(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// metrics are those that are not zero for every candidate.
func (o *Outcome) metrics() []Metric {
	return slices.DeleteFunc(slices.Clone(metrics), func(m Metric) bool {
		return !slices.ContainsFunc(o.Rows, func(r *Row) bool { return r.Metrics[m.Key] != nil && r.Metrics[m.Key].Max != 0 })
	})
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

// section renders the plots and the tables of a group.
func section(r *Results, drawn []chart, group string) string {
	var b strings.Builder
	b.WriteString(images(drawn, group))
	for _, s := range scenarios() {
		if o := r.outcome(s.Name); s.group() == group && o != nil {
			fmt.Fprintf(&b, "### %s\n\n%s %s.\n\n%s\n", s.Name, s.Title, o.caption(), table(o))
		}
	}
	return cmp.Or(b.String(), "Not measured: `make bench-full` does.\n")
}

// images shows the plots of a group.
func images(drawn []chart, group string) string {
	var b strings.Builder
	for _, c := range drawn {
		if c.group == group {
			fmt.Fprintf(&b, "![%s: %s](%s)\n\n", c.title, c.y, c.file)
		}
	}
	return b.String()
}

// caption says how often, when and at which revision a scenario was measured.
func (o *Outcome) caption() string {
	when := o.Began.UTC().Format("2006-01-02 15:04 UTC")
	if o.Of.Revision != "" {
		when += ", revision " + o.Of.Revision
	}
	return fmt.Sprintf("(%d runs, %s)", o.runs(), when)
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
		"parentheses hold the least and the greatest value if they differ by more than a tenth of the median.\n",
		last.UTC().Format("2006-01-02 15:04 UTC"), r.Machine.CPU, r.Machine.Cores,
		r.Machine.Memory, r.Machine.Kernel, r.Machine.Go)
	for _, why := range []string{r.Partial, r.StepsPartial} {
		if why != "" {
			fmt.Fprintf(&b, "\n**Partial**: %s.\n", why)
		}
	}
	return b.String()
}

// template is the Markdown file of the results without its generated parts.
//
//go:embed results.md.tmpl
var template string

// resultsName is the Markdown file beside resultsFile.
const resultsName = "results.md"

// report writes everything that follows from the results in dir: the tables, the
// plots, and the generated parts of the page.
func report(r *Results, dir, page string) error {
	drawn := charts(r)
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	for _, file := range old {
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, c := range drawn {
		if err := c.draw(dir); err != nil {
			return err
		}
	}
	parts := map[string]string{"machine": provenance(r), "steps": images(drawn, "steps") + stepTable(r.Steps)}
	for _, s := range scenarios() {
		parts[s.group()] = section(r, drawn, s.group())
	}
	if err := fill(filepath.Join(dir, resultsName), template, parts); err != nil || page == "" {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	folder, err := relative(filepath.Dir(page), dir)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	parts["targets"], parts["plots"] = targetTable(r), plotTable(drawn, folder)
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

// relative returns the path of a folder as seen from another, both as seen from
// the working directory.
func relative(from, to string) (string, error) {
	from, fromErr := filepath.Abs(from)
	to, toErr := filepath.Abs(to)
	if err := errors.Join(fromErr, toErr); err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}

// plotTable shows the plots of the page, two beside each other.
func plotTable(drawn []chart, folder string) string {
	var cells []string
	for _, file := range pagePlots {
		i := slices.IndexFunc(drawn, func(c chart) bool { return c.file == file })
		if i < 0 {
			continue
		}
		path := filepath.ToSlash(filepath.Join(folder, file))
		cells = append(cells, fmt.Sprintf("![%s: %s](%s)", drawn[i].title, drawn[i].y, path))
	}
	if len(cells) == 0 {
		return "Not measured.\n"
	}
	var text strings.Builder
	text.WriteString("| | |\n|---|---|\n")
	for row := range slices.Chunk(cells, 2) {
		text.WriteString(tableRow(row...))
	}
	return text.String()
}
