package main

import "strings"

// Step is one Go benchmark of a single step, such as the diff.
type Step struct {
	Name    string             `json:"name"`
	Metrics map[string]*Figure `json:"metrics"`
}

func stepTable(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(s.Name + "\n")
	}
	return b.String()
}
