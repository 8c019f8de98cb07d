package doctor

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// seconds formats a duration with about three significant digits.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}

func size(bytes int) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	default:
		return fmt.Sprintf("%d B", bytes)
	}
}

func (r *Report) printCalls(b *strings.Builder, width int) {
	rows := [][]string{{"CALL", "COUNT", "MEDIAN", "LONGEST", "HUNG", "FAILED", "ERROR"}}
	for _, c := range r.Calls {
		rows = append(rows, []string{
			c.Method, strconv.Itoa(c.Count), seconds(c.MedianSeconds), seconds(c.LongestSecs), strconv.Itoa(c.Hung), strconv.Itoa(c.Failed), cmp.Or(c.Error, "-"),
		})
	}
	b.WriteByte('\n')
	printTable(b, rows, "", 6, width)
}

// fact writes a line of the form "Name        text", wrapped.
func fact(b *strings.Builder, width int, name, format string, args ...any) {
	text := view.Wrap(view.Printable(fmt.Sprintf(format, args...)), max(0, width-factIndent), strings.Repeat(" ", factIndent))
	fmt.Fprintf(b, "%-*s%s", factIndent, name, text)
}

// factIndent is where the text of a fact begins.
const factIndent = 12

func (r *Report) printLists(b *strings.Builder, width int) {
	c := r.Counts
	b.WriteByte('\n')
	fact(b, width, "Pods", "%d; sandboxes: %d (%d ready); containers: %d (%d running, %d exited)", c.Pods, c.Sandboxes, c.Ready, c.Containers, c.Running, c.Exited)
	if items := c.Sandboxes + c.Containers; c.Inspected < items {
		fact(b, width, "Partial", "only %d of %d statuses were requested in time", c.Inspected, items)
	}
	fact(b, width, "Relist", "%s for the lists, every %s; %s if every pod had changed, one by one as a kubelet does; not healthy after %s",
		seconds(r.Relist.ListSeconds), seconds(r.Relist.PeriodSeconds), seconds(r.Relist.OneByOneSeconds), seconds(r.Relist.ThresholdSeconds))
	for _, l := range r.Lists {
		fact(b, width, "List size", "%s of %s, %.1f %% (%s)", size(l.Bytes), size(l.LimitBytes), 100*float64(l.Bytes)/float64(l.LimitBytes), l.Method)
	}
	n := r.Node
	if n.UsedPercent != nil {
		fact(b, width, "Disk", "%s is %.0f %% full, %.0f %% of its inodes are in use", n.ImageFilesystem, *n.UsedPercent, *n.InodesPercent)
	}
	if n.IOPressure != nil && n.CPUPressure != nil && n.MemoryPressure != nil {
		fact(b, width, "Pressure", "processes waited for disk %.0f %%, CPU %.0f %%, memory %.0f %% of the last 10 s", *n.IOPressure, *n.CPUPressure, *n.MemoryPressure)
	}
}

// maxItems is the number of calls in a table; JSON has all.
const maxItems = 10

func (r *Report) printItems(b *strings.Builder, width int) {
	for _, part := range []struct {
		title string
		calls []ItemCall
	}{{"Hung", r.Hung}, {"Failed", r.Failed}, {"Slowest", r.Slowest}} {
		if len(part.calls) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s\n", part.title)
		rows := make([][]string, min(len(part.calls), maxItems))
		for n, c := range part.calls[:len(rows)] {
			rows[n] = []string{seconds(c.Seconds), c.Pod, cmp.Or(c.Container, "(sandbox)"), c.Method, view.ShortID(c.ID)}
		}
		printTable(b, rows, "  ", 1, width)
		if more := len(part.calls) - len(rows); more > 0 {
			fmt.Fprintf(b, "  and %d more: -o json has all\n", more)
		}
	}
}

// printTable prints rows with an indent. It cuts the values of one column in the middle,
// so that the rows fit into a width; 0 for any. At least 12 characters stay.
func printTable(b *strings.Builder, rows [][]string, indent string, column, width int) {
	const gap = 2
	room := width - len(indent)
	for i := range rows[0] {
		longest := 0
		for _, row := range rows {
			row[i] = view.Printable(row[i])
			longest = max(longest, utf8.RuneCountInString(row[i]))
		}
		if i != column {
			room -= longest + gap
		}
	}
	t := tabwriter.NewWriter(b, 0, 0, gap, ' ', 0)
	for _, row := range rows {
		if width > 0 {
			row[column] = view.Cut(row[column], max(12, room))
		}
		fmt.Fprintf(t, "%s%s\n", indent, strings.Join(row, "\t"))
	}
	_ = t.Flush() // into memory
}
