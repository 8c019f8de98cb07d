package doctor

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// TextOptions configure the text of a report.
type TextOptions struct {
	// Width is the number of columns at which prose is wrapped and tables are cut; 0 for
	// never.
	Width int
	// Color colors the verdict with ANSI sequences.
	Color bool
}

// good says what was examined.
func (r *Report) good() string {
	if r.Runtime == "" && r.Daemon.answers() {
		return strings.TrimPrefix(r.Daemon.Verdict.Text, "OK: ")
	}
	return fmt.Sprintf("no known cause of an unhealthy PLEG fits; %d pods answer, the lists take %s", r.Counts.Pods, seconds(r.Relist.ListSeconds))
}

// Print writes the report as text: the verdict and what to do, then the tables. It
// returns the error of w.
func (r *Report) Print(w io.Writer, o TextOptions) error {
	p := &page{width: o.Width}
	p.head(r.Verdict, r.Findings)
	for n, f := range r.Findings[min(1, len(r.Findings)):] {
		p.head(fmt.Sprintf("Also %s: %s", f.Severity, f.Summary), r.Findings[n+1:])
	}
	p.WriteByte('\n')
	if r.Endpoint != "" {
		p.fact("Runtime", "%s at %s (from %s), examined in %s", cmp.Or(r.Runtime, "no answer"), r.Endpoint, r.Source, seconds(r.TookSeconds))
	}
	switch d := r.Daemon; {
	case d.answers():
		p.fact("Daemon", "%s, %s", d.Socket, d.Verdict.Text)
	case d != nil:
		p.fact("Daemon", "%s, it does not answer: %s", d.Socket, d.Silent)
	case r.NoDaemon != "":
		p.fact("Daemon", "not asked: %s", r.NoDaemon)
	}
	for _, c := range r.Conditions {
		if !c.Status {
			p.fact("Condition", "not %s: %s %s", c.Type, c.Reason, c.Message)
		}
	}
	r.printCalls(p)
	if len(r.Lists) > 0 {
		r.printLists(p)
	}
	r.printItems(p)
	return p.write(w, o, verdict.New(r.Findings, r.good()).Severity)
}

func (r *Report) printCalls(p *page) {
	rows := [][]string{{"CALL", "COUNT", "MEDIAN", "LONGEST", "HUNG", "FAILED", "ERROR"}}
	for _, c := range r.Calls {
		rows = append(rows, []string{
			c.Method, strconv.Itoa(c.Count), seconds(c.MedianSeconds), seconds(c.LongestSecs), strconv.Itoa(c.Hung), strconv.Itoa(c.Failed), cmp.Or(c.Error, "-"),
		})
	}
	if len(rows) > 1 {
		p.WriteByte('\n')
		p.table(rows, "", 6)
	}
}

func (r *Report) printLists(p *page) {
	c := r.Counts
	p.WriteByte('\n')
	p.fact("Pods", "%d; sandboxes: %d (%d ready); containers: %d (%d running, %d exited)", c.Pods, c.Sandboxes, c.Ready, c.Containers, c.Running, c.Exited)
	if items := c.Sandboxes + c.Containers; c.Inspected < items {
		p.fact("Partial", "only %d of %d statuses were requested in time", c.Inspected, items)
	}
	for _, s := range r.Skipped[:min(len(r.Skipped), maxItems)] {
		p.fact("Skipped", "%v", s)
	}
	p.fact("Relist", "%s for the lists, every %s; %s if every pod had changed, one by one as a kubelet does; not healthy after %s",
		seconds(r.Relist.ListSeconds), seconds(r.Relist.PeriodSeconds), seconds(r.Relist.OneByOneSeconds), seconds(r.Relist.ThresholdSeconds))
	for _, l := range r.Lists {
		p.fact("List size", "%s of %s, %.1f %% (%s)", size(l.Bytes), size(l.LimitBytes), 100*float64(l.Bytes)/float64(l.LimitBytes), l.Method)
	}
	n := r.Node
	if n.UsedPercent != nil {
		p.fact("Disk", "%s is %.0f %% full, %.0f %% of its inodes are in use", n.ImageFilesystem, *n.UsedPercent, *n.InodesPercent)
	}
	if n.IOPressure != nil && n.CPUPressure != nil && n.MemoryPressure != nil {
		p.fact("Pressure", "processes waited for disk %.0f %%, CPU %.0f %%, memory %.0f %% of the last 10 s", *n.IOPressure, *n.CPUPressure, *n.MemoryPressure)
	}
}

// maxItems is the number of calls in a table; JSON has all.
const maxItems = 10

func (r *Report) printItems(p *page) {
	for _, part := range []struct {
		title string
		calls []ItemCall
	}{{"Hung", r.Hung}, {"Failed", r.Failed}, {"Slowest", r.Slowest}} {
		if len(part.calls) == 0 {
			continue
		}
		fmt.Fprintf(p, "\n%s\n", part.title)
		rows := make([][]string, min(len(part.calls), maxItems))
		for n, c := range part.calls[:len(rows)] {
			rows[n] = []string{seconds(c.Seconds), c.Pod, cmp.Or(c.Container, "(sandbox)"), c.Method, view.ShortID(c.ID)}
		}
		p.table(rows, "  ", 1)
		if more := len(part.calls) - len(rows); more > 0 {
			fmt.Fprintf(p, "  and %d more: -o json has all\n", more)
		}
	}
}
