// Command report prints a table of the reports in a folder, as run.sh leaves them in
// KUBELET/PART/report, and the names of the specs that do not pass with every kubelet.
package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// kinds are the kubelets, in the order of the table.
var kinds = []string{"stock", "small-step", "both-steps", "pipeline"}

// outcomes are the results of a spec. A spec that did not run is without a result.
var outcomes = []string{"passed", "failed", "skipped"}

// results are the outcomes of specs, by kubelet.
type results map[string]map[string]string

func main() {
	r, err := read(os.Args[1])
	if err == nil {
		err = r.print(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

type junit struct {
	Cases []struct {
		Name    string `xml:"name,attr"`
		Skipped *struct {
			Message string `xml:"message,attr"`
		} `xml:"skipped"`
		Failure *struct{} `xml:"failure"`
		Error   *struct{} `xml:"error"`
	} `xml:"testsuite>testcase"`
}

// read returns the content of the reports in a folder.
func read(folder string) (results, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*", "*", "report", "junit_*.xml"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, errors.New("no report in "+folder))
	}
	r := make(results)
	for _, file := range files {
		relative, err := filepath.Rel(folder, file)
		if err != nil {
			return nil, err
		}
		kind, _, _ := strings.Cut(relative, string(filepath.Separator))
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if r[kind] == nil {
			r[kind] = make(map[string]string)
		}
		if err := r.add(kind, text); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return r, nil
}

// specName is the type of a spec in a report; steps before and after all specs are of other types.
var specName = regexp.MustCompile(`^\[It\] (?:\[[^]]*\] )?(.*)`)

// notChosen is the message of a spec that was not to run; one that skipped itself says why.
const notChosen = "skipped"

func (r results) add(kind string, text []byte) error {
	var report junit
	if err := xml.Unmarshal(text, &report); err != nil {
		return err
	}
	for _, c := range report.Cases {
		match := specName.FindStringSubmatch(c.Name)
		if match == nil || c.Skipped != nil && c.Skipped.Message == notChosen {
			continue
		}
		outcome := "passed"
		switch {
		case c.Failure != nil || c.Error != nil:
			outcome = "failed"
		case c.Skipped != nil:
			outcome = "skipped"
		}
		r[kind][match[1]] = outcome
	}
	return nil
}

// print writes the table, then each spec that failed with a kubelet or differs.
func (r results) print(w io.Writer) error {
	present := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return r[kind] == nil })
	var out strings.Builder
	out.WriteString("| specs | " + strings.Join(present, " | ") + " |\n| --- |" + strings.Repeat(" ---: |", len(present)) + "\n")
	names := make(map[string]bool)
	for _, outcome := range outcomes {
		out.WriteString("| " + outcome)
		for _, kind := range present {
			n := 0
			for name, got := range r[kind] {
				names[name] = true
				if got == outcome {
					n++
				}
			}
			fmt.Fprintf(&out, " | %d", n)
		}
		out.WriteString(" |\n")
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row := make([]string, len(present))
		for i, kind := range present {
			row[i] = r[kind][name]
			if row[i] == "" {
				row[i] = "did not run"
			}
		}
		if slices.Contains(row, "failed") || len(slices.Compact(slices.Clone(row))) > 1 {
			fmt.Fprintf(&out, "| %s | %s |\n", name, strings.Join(row, " | "))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
