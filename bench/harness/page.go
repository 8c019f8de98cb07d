package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

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
	var b strings.Builder
	b.WriteString("| | |\n|---|---|\n")
	for row := range slices.Chunk(cells, 2) {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String()
}
