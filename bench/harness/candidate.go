package main

import (
	"fmt"
	"strconv"
	"strings"
)

// Candidate is what is measured: "serial", "kubelet", "pipeline-N" with at most N
// inspectors and N status calls in flight, "fixed-N" with always N inspectors, or
// "events-N", a pipeline-N that follows CRI events.
type Candidate string

// The candidates that are not pipelines.
const (
	serial  Candidate = "serial"
	kubelet Candidate = "kubelet"
)

// candidates are separated by spaces.
func candidates(names string) []Candidate {
	var out []Candidate
	for name := range strings.FieldsSeq(names) {
		out = append(out, Candidate(name))
	}
	return out
}

const (
	allWidths   = "pipeline-1 pipeline-2 pipeline-4 pipeline-8 pipeline-16 pipeline-32"
	fixedWidths = "fixed-4 fixed-8 fixed-16 fixed-32"
	everyone    = "serial kubelet " + allWidths
	oneWidth    = "serial kubelet pipeline-16"
	twoWidths   = "serial kubelet pipeline-8 pipeline-16"
)

// parseCandidate returns an error for a name that is not a candidate.
func parseCandidate(name string) (Candidate, error) {
	c := Candidate(name)
	if c == serial || c == kubelet || c.inspectors() > 0 {
		return c, nil
	}
	return "", fmt.Errorf("unknown candidate %q: want serial, kubelet, pipeline-N, fixed-N or events-N with N of at least 1", name)
}

// inspectors returns 0 for a candidate that is not a pipeline.
func (c Candidate) inspectors() int {
	kind, number, _ := strings.Cut(string(c), "-")
	if kind != "pipeline" && kind != "fixed" && kind != "events" {
		return 0
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// fixed reports whether the pipeline always uses all its inspectors.
func (c Candidate) fixed() bool { return strings.HasPrefix(string(c), "fixed-") }

// events reports whether the pipeline follows CRI events.
func (c Candidate) events() bool { return strings.HasPrefix(string(c), "events-") }

// findsWidth reports whether the pipeline adapts its width to the runtime.
func (c Candidate) findsWidth() bool { return c.inspectors() > 1 && !c.fixed() }

// width is the most status calls the candidate has in flight.
func (c Candidate) width() int { return max(1, c.inspectors()) }
