package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
)

// Report is the result of an examination. Its JSON form is one of the program's
// outputs.
type Report struct {
	At time.Time `json:"at"`
	// TookSeconds is how long the examination took.
	TookSeconds float64 `json:"tookSeconds"`
	Endpoint    string  `json:"endpoint,omitempty"`
	Source      string  `json:"source,omitempty"`
	Runtime     string  `json:"runtime,omitempty"`
	// Conditions are the conditions that the runtime reports.
	Conditions []Condition `json:"conditions,omitempty"`
	// Calls are the calls, by method.
	Calls  []Call `json:"calls"`
	Relist Relist `json:"relist"`
	Counts Counts `json:"counts"`
	// Lists are the sizes of the two lists.
	Lists []ListSize `json:"lists,omitempty"`
	// Hung are the calls that did not return in time. Slowest are those of the others
	// that took longest.
	Hung    []ItemCall `json:"hung,omitempty"`
	Slowest []ItemCall `json:"slowest,omitempty"`
	// Largest are the pods with the most bytes in the lists, MostDead those with the
	// most exited containers.
	Largest  []PodSize `json:"largest,omitempty"`
	MostDead []PodDead `json:"mostDead,omitempty"`
	Node     Node      `json:"node"`
	// Findings are the known causes that fit, problems first.
	Findings []Finding `json:"findings"`

	// inspection is the result of the status calls, for the findings.
	inspection inspection
}

// Condition is one condition of the runtime.
type Condition struct {
	Type    string `json:"type"`
	Status  bool   `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Call summarizes the calls of one method.
type Call struct {
	Method string `json:"method"`
	Count  int    `json:"count"`
	// Hung calls did not return in time, Failed calls returned an error.
	Hung          int     `json:"hung"`
	Failed        int     `json:"failed"`
	MedianSeconds float64 `json:"medianSeconds"`
	LongestSecs   float64 `json:"longestSeconds"`
	// Error is the first error.
	Error string `json:"error,omitempty"`
}

// Relist compares the duration of a relist with the kubelet's limits.
type Relist struct {
	// ListSeconds is the duration of the longer of the two concurrent lists.
	ListSeconds float64 `json:"listSeconds"`
	// OneByOneSeconds is the duration of a kubelet's relist if every pod had changed:
	// the lists and the status of each pod, one after the other.
	OneByOneSeconds float64 `json:"oneByOneSeconds"`
	PeriodSeconds   float64 `json:"periodSeconds"`
	// ThresholdSeconds is the age of the last relist at which a kubelet reports that
	// PLEG is not healthy.
	ThresholdSeconds float64 `json:"thresholdSeconds"`
}

// Counts are the numbers of pods, sandboxes and containers in the lists.
type Counts struct {
	Pods       int `json:"pods"`
	Sandboxes  int `json:"sandboxes"`
	Ready      int `json:"readySandboxes"`
	Containers int `json:"containers"`
	Running    int `json:"running"`
	Exited     int `json:"exited"`
	// Inspected is the number of sandboxes and containers whose status was requested
	// in time.
	Inspected int `json:"inspected"`
	// WithoutIP is the number of ready sandboxes with a network of their own and no
	// address.
	WithoutIP int `json:"withoutIP"`
}

// ListSize is the size of a list.
type ListSize struct {
	Method string `json:"method"`
	Bytes  int    `json:"bytes"`
	// LimitBytes is the size that kubelets and runtimes accept.
	LimitBytes int `json:"limitBytes"`
	// Portioned is true if the runtime could not send the list as a whole.
	Portioned bool `json:"portioned,omitempty"`
}

// ItemCall is one status call.
type ItemCall struct {
	Method    string  `json:"method"`
	Pod       string  `json:"pod"`
	PodUID    string  `json:"podUID"`
	Container string  `json:"container,omitempty"`
	ID        string  `json:"id"`
	Seconds   float64 `json:"seconds"`
}

// PodSize is the size of one pod in the lists, in bytes.
type PodSize struct {
	Pod         string `json:"pod"`
	PodUID      string `json:"podUID"`
	Bytes       int    `json:"bytes"`
	Annotations int    `json:"annotationBytes"`
}

// PodDead is a pod with exited containers.
type PodDead struct {
	Pod    string `json:"pod"`
	PodUID string `json:"podUID"`
	Exited int    `json:"exited"`
}

// Node has the kernel's figures. Unknown figures are left out.
type Node struct {
	// IOPressure, CPUPressure and MemoryPressure are the percentages of the last ten
	// seconds in which a process waited for the resource.
	IOPressure     *float64 `json:"ioPressure,omitempty"`
	CPUPressure    *float64 `json:"cpuPressure,omitempty"`
	MemoryPressure *float64 `json:"memoryPressure,omitempty"`
	// ImageFilesystem is the mount point with images and containers.
	ImageFilesystem string   `json:"imageFilesystem,omitempty"`
	UsedPercent     *float64 `json:"usedPercent,omitempty"`
	InodesPercent   *float64 `json:"inodesPercent,omitempty"`
}

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	// Problem is a cause that makes PLEG unhealthy, now or soon.
	Problem Severity = "problem"
	// Warning is a cause that may make PLEG unhealthy.
	Warning Severity = "warning"
)

// Finding is a known cause that fits.
type Finding struct {
	Cause    Cause    `json:"cause"`
	Severity Severity `json:"severity"`
	// Evidence is what the doctor found, Advice what to do.
	Evidence string `json:"evidence"`
	Advice   string `json:"advice"`
}

// Cause is a known cause of an unhealthy PLEG.
type Cause string

// The causes.
const (
	RuntimeStopped Cause = "runtime stopped"
	RuntimeHangs   Cause = "runtime hangs"
	RuntimeSlow    Cause = "runtime slow"
	RuntimeUnready Cause = "runtime not ready"
	HungContainer  Cause = "hung container"
	DeadContainers Cause = "too many dead containers"
	ListTooLarge   Cause = "list too large"
	NetworkPlugin  Cause = "network plugin"
	Disk           Cause = "disk"
)

// Healthy reports whether no problem was found.
func (r *Report) Healthy() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Problem })
}

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

// Print writes the report as text. It returns the error of w.
func (r *Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s (from %s), examined in %s\n", cmp.Or(r.Runtime, "container runtime"), cmp.Or(r.Endpoint, "no address"), r.Source, seconds(r.TookSeconds))
	for _, c := range r.Conditions {
		if !c.Status {
			fmt.Fprintf(&b, "%s: no, %s %s\n", c.Type, c.Reason, c.Message)
		}
	}
	if len(r.Calls) > 0 {
		r.printCalls(&b)
	}
	if len(r.Lists) > 0 {
		r.printLists(&b)
	}
	r.printItems(&b)
	r.printFindings(&b)
	_, err := io.WriteString(w, printer.PrintableLines(b.String()))
	return err
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
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", seconds(c.Seconds), c.Pod, cmp.Or(c.Container, "(sandbox)"), c.Method, c.ID)
		}
		_ = t.Flush() // into memory
	}
	items("Hung", r.Hung)
	items("Slowest", r.Slowest)
}

func (r *Report) printFindings(b *strings.Builder) {
	if len(r.Findings) == 0 {
		fmt.Fprintln(b, "\nHealthy: no known cause of an unhealthy PLEG fits.")
		return
	}
	for _, f := range r.Findings {
		fmt.Fprintf(b, "\n%s: %s\n  seen: %s\n  do:   %s\n", strings.ToUpper(string(f.Severity)), f.Cause, f.Evidence, f.Advice)
	}
}
