package doctor

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
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

func (r *Report) printCalls(b *strings.Builder) {
	b.WriteByte('\n')
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CALL\tCOUNT\tMEDIAN\tLONGEST\tHUNG\tFAILED\tERROR")
	for _, c := range r.Calls {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\t%d\t%s\n", c.Method, c.Count, seconds(c.MedianSeconds), seconds(c.LongestSecs), c.Hung, c.Failed, cmp.Or(c.Error, "-"))
	}
	_ = t.Flush() // into memory
}

func (r *Report) printLists(b *strings.Builder) {
	c := r.Counts
	fmt.Fprintf(b, "\nPods        %d, with %d sandboxes (%d ready) and %d containers (%d running, %d exited)\n", c.Pods, c.Sandboxes, c.Ready, c.Containers, c.Running, c.Exited)
	if items := c.Sandboxes + c.Containers; c.Inspected < items {
		fmt.Fprintf(b, "Partial     only %d of %d statuses were requested in time\n", c.Inspected, items)
	}
	fmt.Fprintf(b, "Relist      %s for the lists, every %s", seconds(r.Relist.ListSeconds), seconds(r.Relist.PeriodSeconds))
	fmt.Fprintf(b, "; %s if every pod had changed, one by one as a kubelet does; not healthy after %s\n", seconds(r.Relist.OneByOneSeconds), seconds(r.Relist.ThresholdSeconds))
	for _, l := range r.Lists {
		fmt.Fprintf(b, "List size   %s of %s, %.1f %% (%s)\n", size(l.Bytes), size(l.LimitBytes), 100*float64(l.Bytes)/float64(l.LimitBytes), l.Method)
	}
	n := r.Node
	if n.UsedPercent != nil {
		fmt.Fprintf(b, "Disk        %s is %.0f %% full, %.0f %% of its inodes are in use\n", n.ImageFilesystem, *n.UsedPercent, *n.InodesPercent)
	}
	if n.IOPressure != nil && n.CPUPressure != nil && n.MemoryPressure != nil {
		fmt.Fprintf(b, "Pressure    processes waited for disk %.0f %%, CPU %.0f %%, memory %.0f %% of the last 10 s\n", *n.IOPressure, *n.CPUPressure, *n.MemoryPressure)
	}
}

func (r *Report) printItems(b *strings.Builder) {
	items := func(title string, calls []ItemCall) {
		if len(calls) == 0 {
			return
		}
		fmt.Fprintf(b, "\n%s\n", title)
		t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		for _, c := range calls {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", seconds(c.Seconds), c.Pod, cmp.Or(c.Container, "(sandbox)"), c.Method, printer.ShortID(c.ID))
		}
		_ = t.Flush() // into memory
	}
	items("Hung", r.Hung)
	items("Failed", r.Failed)
	items("Slowest", r.Slowest)
}
