package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// Fleet is the report of a cluster's agents about their nodes. Its JSON form is one of the
// program's outputs.
type Fleet struct {
	At time.Time `json:"at"`
	// Verdict is the worst verdict of all nodes, in one line.
	Verdict string `json:"verdict"`
	// Stream is how full the stream is, in percent; 0 if its size is unlimited.
	Stream int `json:"stream,omitempty"`
	// Nodes are ranked by severity, cause, pod and age, the worst first.
	Nodes []NodeVerdict `json:"nodes"`
}

// NodeVerdict is the verdict on one node.
type NodeVerdict struct {
	Node string `json:"node"`
	fleet.Verdict
}

// unknown is the verdict of an agent that publishes none.
var unknown = fleet.Verdict{Severity: "unknown", Text: "UNKNOWN: the agent publishes no verdict", Findings: []fleet.Finding{}}

// severities are from the worst to the best.
var severities = []string{"problem", "warning", "unknown", "ok"}

// Rank returns the verdicts on nodes.
func Rank(nodes []fleet.Node, now time.Time) *Fleet {
	f := &Fleet{At: now, Nodes: make([]NodeVerdict, len(nodes))}
	for i, n := range nodes {
		f.Nodes[i] = NodeVerdict{n.Name, unknown}
		if n.Verdict != nil {
			f.Nodes[i].Verdict = *n.Verdict
		}
	}
	slices.SortStableFunc(f.Nodes, func(a, b NodeVerdict) int {
		first, second := a.first(), b.first()
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(first.Cause, second.Cause), cmp.Compare(first.Pod, second.Pod), first.Since.Compare(second.Since))
	})
	worst, like := f.worst(), 0
	for like < len(f.Nodes) && f.Nodes[like].rank() == worst.rank() {
		like++
	}
	f.Verdict = fmt.Sprintf("%s: %d of %d nodes", strings.ToUpper(string(worst.Severity)), like, len(nodes))
	if found := worst.first(); found.What != "" {
		f.Verdict += "; " + view.Printable(fmt.Sprintf("%s: %s %s", worst.Node, found.Subject, found.Complaint(now)))
	}
	return f
}

// Fills notes how full the stream is. A stream that is nearly full is a warning: it refuses events
// soon.
func (f *Fleet) Fills(used, limit uint64) {
	if limit == 0 {
		return
	}
	const nearly = 80
	if f.Stream = int(100 * used / limit); f.Stream >= nearly {
		f.Verdict = fmt.Sprintf("%s; the stream is %d %% full", strings.Replace(f.Verdict, "OK:", "WARNING:", 1), f.Stream)
	}
}

func (n NodeVerdict) rank() int { return max(0, slices.Index(severities, string(n.Severity))) }

// first returns the worst finding; the zero value if there is none.
func (n NodeVerdict) first() fleet.Finding {
	if len(n.Findings) == 0 {
		return fleet.Finding{}
	}
	return n.Findings[0]
}

// worst returns the first node; a healthy node if there are none.
func (f *Fleet) worst() NodeVerdict {
	if len(f.Nodes) == 0 {
		return NodeVerdict{Verdict: fleet.Verdict{Severity: "ok"}}
	}
	return f.Nodes[0]
}

// Healthy reports whether all nodes are without a problem.
func (f *Fleet) Healthy() bool { return f.worst().rank() > 0 }

// Print writes the verdict, what to do, and a table of the nodes with problems. It returns the
// error of w.
func (f *Fleet) Print(w io.Writer, o TextOptions) error {
	p := &page{width: o.Width}
	p.head(f.Verdict, f.worst().Findings)
	rows := [][]string{{"NODE", "VERDICT", "CAUSE", "AGE", "POD"}}
	for _, n := range f.Nodes {
		if n.rank() == len(severities)-1 {
			break // the rest are healthy
		}
		first := n.first()
		rows = append(rows, []string{n.Node, string(n.Severity), cmp.Or(string(first.Cause), "-"), view.Ago(first.Since, f.At), cmp.Or(first.Pod, "-")})
	}
	if len(rows) > 1 {
		p.WriteByte('\n')
		p.table(rows, 4)
	}
	return p.write(w, o)
}
