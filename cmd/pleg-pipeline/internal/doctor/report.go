package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Report is the result of an examination. Its JSON form is one of the program's
// outputs.
type Report struct {
	At time.Time `json:"at"`
	// Verdict is the result in one line: the worst finding, or that there is none.
	Verdict string `json:"verdict"`
	// TookSeconds is how long the examination took.
	TookSeconds float64 `json:"tookSeconds"`
	Endpoint    string  `json:"endpoint,omitempty"`
	Source      string  `json:"source,omitempty"`
	Runtime     string  `json:"runtime,omitempty"`
	// Daemon is what the daemon of this node knows; nil if none was asked: NoDaemon says why.
	Daemon   *Daemon `json:"daemon,omitempty"`
	NoDaemon string  `json:"noDaemon,omitempty"`
	// Conditions are the conditions that the runtime reports.
	Conditions []Condition `json:"conditions,omitempty"`
	// Calls are the calls, by method.
	Calls  []Call `json:"calls"`
	Relist Relist `json:"relist"`
	Counts Counts `json:"counts"`
	// Lists are the sizes of the two lists.
	Lists []ListSize `json:"lists,omitempty"`
	// Hung are the calls that did not return in time, Failed the calls that returned an error.
	// Slowest are the longest of the other calls.
	Hung    []ItemCall `json:"hung,omitempty"`
	Failed  []ItemCall `json:"failed,omitempty"`
	Slowest []ItemCall `json:"slowest,omitempty"`
	// Largest are the pods with the most bytes in the lists, MostDead the pods with the most exited
	// containers and sandboxes.
	Largest  []PodSize `json:"largest,omitempty"`
	MostDead []PodSize `json:"mostDead,omitempty"`
	// Skipped are the listed items that are malformed, or that belong to no pod.
	Skipped []Skipped `json:"skipped,omitempty"`
	// Empty are the containers that the runtime calls running although their cgroup has
	// no process.
	Empty []EmptyContainer `json:"empty,omitempty"`
	Node  Node             `json:"node"`
	// Findings are the known causes that fit, problems first.
	Findings []verdict.Finding `json:"findings"`
}

// Daemon is what the daemon of a node knows. It has watched for longer than an examination.
type Daemon struct {
	Socket string `json:"socket"`
	// Verdict is the verdict of the daemon alone.
	Verdict verdict.Verdict `json:"verdict,omitzero"`
	// Silent is why the daemon did not answer; empty if it did. Advice is what to do about that.
	Silent string `json:"silent,omitempty"`
	Advice string `json:"-"`

	status pleg.Status
	pid    int // of a daemon that does not answer; 0 if it is not known
}

// SilentDaemon returns a daemon that does not answer. p is its process, or nil. A process that can
// answer is not why.
func SilentDaemon(socket, why string, p *pleg.Process) *Daemon {
	d := &Daemon{Socket: socket, Silent: why}
	if p == nil {
		return d
	}
	d.pid = p.PID
	switch p.State {
	case "T", "t":
		d.Silent = fmt.Sprintf("its process %d is stopped (state %s)", p.PID, p.State)
		d.Advice = fmt.Sprintf("continue it (kill -CONT %d)", p.PID)
	case "D":
		d.Silent = fmt.Sprintf("its process %d waits in the kernel (state D)", p.PID)
	}
	return d
}

// Frozen reports whether the daemon's process is stopped.
func (d *Daemon) Frozen() bool { return d.Advice != "" }

// Err returns why the daemon does not answer, and what to do, as a [verdict.Error].
func (d *Daemon) Err() error {
	f := d.finding("")
	f.Severity = verdict.Problem // nobody knows how the runtime is
	return verdict.Error{Finding: f.Completed(time.Now())}
}

// answers reports whether there is a daemon that answers.
func (d *Daemon) answers() bool { return d != nil && d.Silent == "" }

// finding says that the daemon does not answer. runtime says how the runtime is.
func (d *Daemon) finding(runtime string) verdict.Finding {
	return verdict.Finding{
		Cause: verdict.DaemonSilent, Severity: verdict.Warning, Advice: d.Advice,
		Summary: fmt.Sprintf("the daemon at %s does not answer: %s%s", d.Socket, d.Silent, runtime),
	}
}

// Endpoint returns the address of the daemon's runtime; "" if it is not known.
func (d *Daemon) Endpoint() string {
	if d == nil {
		return ""
	}
	return d.status.Endpoint
}

// NewDaemon returns what the status of a daemon says.
func NewDaemon(socket string, s pleg.Status) *Daemon {
	return &Daemon{Socket: socket, Verdict: verdict.Of(s), status: s}
}

// connected reports whether the daemon has a connection to the runtime.
func (d *Daemon) connected() bool {
	return d.status.Relist.Failures == 0 && !d.status.Relist.Success.IsZero()
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

	answered float64 // the median of those that did not hang
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
	Error     string  `json:"error,omitempty"`

	began time.Time
}

// call returns the call as the daemon knows it.
func (c *ItemCall) call() *pleg.Call {
	return &pleg.Call{Method: c.Method, Container: c.Container, ID: pleg.ContainerID(c.ID), Started: c.began}
}

// EmptyContainer is a container without a process.
type EmptyContainer struct {
	Pod       string `json:"pod"`
	PodUID    string `json:"podUID"`
	Container string `json:"container"`
	ID        string `json:"id"`
	Cgroup    string `json:"cgroup"`
}

// PodSize is what one pod has in the lists, in bytes, and exited containers and sandboxes.
type PodSize struct {
	Pod         string `json:"pod"`
	PodUID      string `json:"podUID"`
	Bytes       int    `json:"bytes"`
	Annotations int    `json:"annotationBytes"`
	Exited      int    `json:"exited"`
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

// Healthy reports whether no problem was found.
func (r *Report) Healthy() bool {
	return !slices.ContainsFunc(r.Findings, func(f verdict.Finding) bool { return f.Severity == verdict.Problem })
}

// Lasting returns the verdict without ages.
func (r *Report) Lasting() string {
	v := verdict.New(r.Findings, r.good())
	return view.Printable(v.Lasting())
}
