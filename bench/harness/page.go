package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// marked is a generated part of the page.
var marked = regexp.MustCompile(`(?s)(<!-- figures: ([a-z]+) -->\n).*?(<!-- end -->)`)

// resultsName is the Markdown file beside resultsFile.
const resultsName = "results.md"

// report writes everything that follows from the results in dir: the tables, the
// plots, and the generated parts of the page.
func report(r *Results, dir, page string) error {
	drawn := charts(r)
	if err := os.WriteFile(filepath.Join(dir, resultsName), []byte(markdown(r, drawn)), 0o644); err != nil {
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

// fill replaces the generated parts of the page.
func fill(page, dir string, r *Results, drawn []chart) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("fill page: %w", err)
	}
	plots, err := relative(filepath.Dir(page), dir)
	if err != nil {
		return fmt.Errorf("fill page: %w", err)
	}
	parts := map[string]string{
		"machine": provenance(r), "targets": targetTable(r), "plots": plotTable(drawn, plots),
	}
	filled := marked.ReplaceAllStringFunc(string(text), func(part string) string {
		m := marked.FindStringSubmatch(part)
		content, ok := parts[m[2]]
		if !ok {
			err = fmt.Errorf("fill page %s: unknown part %q", page, m[2])
		}
		return m[1] + "\n" + content + "\n" + m[3]
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(page, []byte(filled), 0o644); err != nil {
		return fmt.Errorf("fill page: %w", err)
	}
	return nil
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
func plotTable(drawn []chart, plots string) string {
	var cells []string
	for _, file := range pagePlots {
		i := slices.IndexFunc(drawn, func(c chart) bool { return c.file == file })
		if i < 0 {
			continue
		}
		path := filepath.ToSlash(filepath.Join(plots, file))
		cells = append(cells, fmt.Sprintf("![%s: %s](%s)", drawn[i].title, drawn[i].y, path))
	}
	if len(cells) == 0 {
		return "Not measured.\n"
	}
	var b strings.Builder
	b.WriteString("| | |\n|---|---|\n")
	for row := range slices.Chunk(cells, 2) {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String()
}
