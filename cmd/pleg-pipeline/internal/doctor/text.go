package doctor

import (
	"cmp"
	"fmt"
	"io"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
)

// TextOptions configure the text of a report.
type TextOptions struct {
	// Width is the number of columns at which prose is wrapped; 0 for
	// never.
	Width int
	// Color colors the verdict with ANSI sequences.
	Color bool
}

// Print writes the report as text: the verdict and what to do, then the figures. It
// returns the error of w.
func (r *Report) Print(w io.Writer, o TextOptions) error {
	p := &page{width: o.Width}
	p.head(r.Verdict, r.Findings)
	for n, f := range r.Findings[min(1, len(r.Findings)):] {
		p.head(fmt.Sprintf("Also %s: %s", f.Severity, f.Summary), r.Findings[n+1:])
	}
	p.WriteByte('\n')
	if r.Endpoint != "" {
		p.fact("Runtime", "%s at %s (from %s), watched for %s", cmp.Or(r.Runtime, "no answer"), r.Endpoint, r.Source, seconds(r.TookSeconds))
	}
	switch d := r.Daemon; {
	case d.answers():
		p.fact("Daemon", "%s, %s", d.Socket, d.Verdict.Text)
	case d != nil:
		p.fact("Daemon", "%s, it does not answer: %s", d.Socket, d.Silent)
	case r.NoDaemon != "":
		p.fact("Daemon", "not asked: %s", r.NoDaemon)
	}
	if r.Runtime != "" {
		r.printNode(p)
	}
	return p.write(w, o)
}

func (r *Report) printNode(p *page) {
	c := r.Counts
	p.fact("Pods", "%d; sandboxes: %d (%d ready); containers: %d (%d running, %d exited)", c.Pods, c.Sandboxes, c.Ready, c.Containers, c.Running, c.Exited)
	for _, l := range r.Lists {
		p.fact("List size", "%s of %s, %.1f %% (%s)", host.Size(l.Bytes), host.Size(l.LimitBytes), 100*float64(l.Bytes)/float64(l.LimitBytes), l.Method)
	}
	n := r.Node
	if n.UsedPercent != nil {
		p.fact("Disk", "%s is %.0f %% full, %.0f %% of its inodes are in use", n.ImageFilesystem, *n.UsedPercent, *n.InodesPercent)
	}
	if n.IOPressure != nil && n.CPUPressure != nil && n.MemoryPressure != nil {
		p.fact("Pressure", "processes waited for disk %.0f %%, CPU %.0f %%, memory %.0f %% of the last 10 s", *n.IOPressure, *n.CPUPressure, *n.MemoryPressure)
	}
}
