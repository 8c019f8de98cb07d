package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// marked is a part of the page that the figures are put into. What is between
// the marks belongs to this program.
var marked = regexp.MustCompile(`(?s)(<!-- figures: ([a-z]+) -->\n).*?(<!-- end -->)`)

// resultsName is the Markdown file beside resultsFile.
const resultsName = "results.md"

// report makes everything that follows from the results in dir: the tables, the
// plots, and the figures in the page.
func report(r *Results, dir, page string) error {
	if err := os.WriteFile(filepath.Join(dir, resultsName), []byte(markdown(r)), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	drawn := charts(r)
	for _, c := range drawn {
		if err := c.draw(dir); err != nil {
			return err
		}
	}
	if page == "" {
		return nil
	}
	return fill(page, dir, r, drawn)
}

// fill replaces the marked parts of the page.
func fill(page, dir string, r *Results, drawn []chart) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("page of the figures: %w", err)
	}
	plots, err := relative(filepath.Dir(page), dir)
	if err != nil {
		return fmt.Errorf("page of the figures: %w", err)
	}
	filled := marked.ReplaceAllStringFunc(string(text), func(part string) string {
		m := marked.FindStringSubmatch(part)
		return m[1] + "\n" + section(m[2], r, drawn, plots) + "\n" + m[3]
	})
	if err := os.WriteFile(page, []byte(filled), 0o644); err != nil {
		return fmt.Errorf("page of the figures: %w", err)
	}
	return nil
}

// relative returns the path of a folder as seen from another, both as seen from
// here.
func relative(from, to string) (string, error) {
	from, fromErr := filepath.Abs(from)
	to, toErr := filepath.Abs(to)
	if err := errors.Join(fromErr, toErr); err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}

func section(name string, r *Results, drawn []chart, plots string) string {
	switch name {
	case "machine":
		return provenance(r)
	case "targets":
		return targetTable(r)
	case "steps":
		return images(drawn, plots, name) + stepTable(r.Steps)
	}
	var b strings.Builder
	b.WriteString(images(drawn, plots, name))
	for _, o := range r.Scenarios {
		if o.Group == name {
			fmt.Fprintf(&b, "`%s`: %s.\n\n%s\n%s", o.Name, o.caption(), table(o), images(drawn, plots, o.Name))
		}
	}
	if b.Len() == 0 {
		return "Not part of this run: `make bench-full` measures it.\n"
	}
	return b.String()
}

// images shows the plots of a part of the page, or of a scenario.
func images(drawn []chart, plots, of string) string {
	var b strings.Builder
	for _, c := range drawn {
		if c.of == of {
			fmt.Fprintf(&b, "![%s: %s](%s)\n\n", c.title, c.y, filepath.ToSlash(filepath.Join(plots, c.file)))
		}
	}
	return b.String()
}
