// Package conform tries what a container runtime promises to those who follow its
// pods. It runs pods of its own on the runtime, compares what the runtime reports with
// what was done to them, and prints a table, promise by promise.
//
// This is the only package of the program that changes something in a runtime.
package conform

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Options are the settings of a run.
type Options struct {
	// Endpoint is the CRI socket.
	Endpoint string
	// Image is the image of all containers. It must be on the node, and may be any:
	// the containers run this program, which is mounted into them.
	Image string
	// CgroupParent is that of the pods. If empty, the runtime chooses.
	CgroupParent string
	// CallTimeout is the time after which a call counts as held up.
	CallTimeout time.Duration
	// Settle is how long an event may be late.
	Settle time.Duration
	// Stop and Start stop and start the runtime. If nil, what a runtime promises across
	// a restart is not tested.
	Stop, Start func(context.Context) error
	// Only and Skip name promises by their ids, see [CheckIDs]. If Only is empty, all are tried.
	Only, Skip []string
	// Progress is called before each promise. If nil, nobody is told.
	Progress func(id string)
}

// Verdict is the result for one promise.
type Verdict string

// The verdicts.
const (
	Kept       Verdict = "kept"
	Broken     Verdict = "broken"
	NotOffered Verdict = "not offered"
	NotTested  Verdict = "not tested"
)

// Row is the result for one promise.
type Row struct {
	ID       string  `json:"id"`
	Promise  string  `json:"promise"`
	Verdict  Verdict `json:"verdict"`
	Evidence string  `json:"evidence,omitempty"`
	// Source says which document or issue promises it.
	Source string `json:"source"`
	// Pipeline says what pleg-pipeline does if the promise is broken or not made.
	Pipeline string `json:"pipeline"`
}

// Report is the result of a run.
type Report struct {
	Runtime string    `json:"runtime"`
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	Rows    []Row     `json:"promises"`
}

// Conforms reports whether no promise is broken.
func (r *Report) Conforms() bool {
	return !slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Verdict == Broken })
}

// Run tries every promise and removes its pods. If ctx ends, it removes them and
// returns the cause. A promise that cannot be tried because of an error of a call is
// broken, and the evidence is the error.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	n, err := newNode(o)
	if err != nil {
		return nil, err
	}
	report := &Report{At: time.Now()}
	defer func() {
		if closeErr := n.close(ctx); closeErr != nil {
			err = closeErr
		}
	}()
	version, err := n.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return nil, err
	}
	report.Runtime, report.Version = version.GetRuntimeName(), version.GetRuntimeVersion()
	if err := n.checkImage(ctx); err != nil {
		return nil, err
	}
	n.events = n.endOfEvents(ctx)
	for _, p := range promises() { //nolint:contextcheck // a trial has the context
		if len(o.Only) > 0 && !slices.Contains(o.Only, p.id) || slices.Contains(o.Skip, p.id) {
			continue
		}
		if o.Progress != nil {
			o.Progress(p.id)
		}
		r := n.try(ctx, p)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		report.Rows = append(report.Rows, Row{p.id, p.text, r.verdict, r.evidence, p.source, p.pipeline})
	}
	return report, nil
}

// CheckIDs returns an error if an id names no promise.
func CheckIDs(ids []string) error {
	var known []string
	for _, p := range promises() {
		known = append(known, p.id)
	}
	for _, id := range ids {
		if !slices.Contains(known, id) {
			return fmt.Errorf("there is no promise %q: want %q", id, known)
		}
	}
	return nil
}

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s %s\n\n", r.Runtime, r.Version)
	fmt.Fprint(table, "VERDICT\tPROMISE\tEVIDENCE\tPROMISED BY\n")
	counts := make(map[Verdict]int)
	for _, row := range r.Rows {
		counts[row.Verdict]++
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", row.Verdict, row.Promise, row.Evidence, row.Source)
	}
	fmt.Fprintf(table, "\n%d kept, %d broken, %d not offered, %d not tested\n", counts[Kept], counts[Broken], counts[NotOffered], counts[NotTested])
	return table.Flush()
}
