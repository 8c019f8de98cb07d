package doctor

import "time"

// Report is what an examination found. Its JSON form is one of the program's
// outputs.
type Report struct {
	At time.Time `json:"at"`
	// TookSeconds is how long the examination took.
	TookSeconds float64 `json:"tookSeconds"`
	Endpoint    string  `json:"endpoint,omitempty"`
	Source      string  `json:"source,omitempty"`
	Runtime     string  `json:"runtime,omitempty"`
	// Conditions are what the runtime says of itself.
	Conditions []Condition `json:"conditions,omitempty"`
	// Calls are the calls that were made, by method.
	Calls  []Call `json:"calls"`
	Relist Relist `json:"relist"`
	Counts Counts `json:"counts"`
	// Lists are the sizes of the two lists.
	Lists []ListSize `json:"lists,omitempty"`
	// Hung are the calls that did not end in time, Slowest those that took
	// longest of the others.
	Hung    []ItemCall `json:"hung,omitempty"`
	Slowest []ItemCall `json:"slowest,omitempty"`
	// Largest are the pods that take most of the lists, MostDead those with
	// most exited containers.
	Largest  []PodSize `json:"largest,omitempty"`
	MostDead []PodDead `json:"mostDead,omitempty"`
	Node     Node      `json:"node"`
	// Findings are the known causes that fit, the worst first.
	Findings []Finding `json:"findings"`

	// inspection is what the findings need to know of the status calls.
	inspection inspection
}

// Condition is one condition of the runtime.
type Condition struct {
	Type    string `json:"type"`
	Status  bool   `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Call is all calls of one method.
type Call struct {
	Method string `json:"method"`
	Count  int    `json:"count"`
	// Hung did not end in time, Failed with an error.
	Hung          int     `json:"hung"`
	Failed        int     `json:"failed"`
	MedianSeconds float64 `json:"medianSeconds"`
	LongestSecs   float64 `json:"longestSeconds"`
	// Error is the first error.
	Error string `json:"error,omitempty"`
}

// Relist compares what a relist costs with the time that there is for it.
type Relist struct {
	// ListSeconds is the longer of the two lists, which are made at once.
	ListSeconds float64 `json:"listSeconds"`
	// OneByOneSeconds is what a kubelet would need if every pod had changed: the
	// lists and the status of each pod, one after the other.
	OneByOneSeconds float64 `json:"oneByOneSeconds"`
	PeriodSeconds   float64 `json:"periodSeconds"`
	// ThresholdSeconds is the age of the last relist at which a kubelet says
	// that PLEG is not healthy.
	ThresholdSeconds float64 `json:"thresholdSeconds"`
}

// Counts is what the lists hold.
type Counts struct {
	Pods       int `json:"pods"`
	Sandboxes  int `json:"sandboxes"`
	Ready      int `json:"readySandboxes"`
	Containers int `json:"containers"`
	Running    int `json:"running"`
	Exited     int `json:"exited"`
	// Inspected of the sandboxes and containers were asked for their status,
	// as many as there was time for.
	Inspected int `json:"inspected"`
	// WithoutIP are ready sandboxes with a network of their own and no address.
	WithoutIP int `json:"withoutIP"`
}

// ListSize is the size of a list.
type ListSize struct {
	Method string `json:"method"`
	Bytes  int    `json:"bytes"`
	// LimitBytes is the size that kubelet and runtimes accept.
	LimitBytes int `json:"limitBytes"`
	// Portioned is whether the runtime could not send it in one piece.
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

// PodSize is what one pod takes of the lists.
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

// Node is what the kernel says. What is not known is left out.
type Node struct {
	// IOPressure, CPUPressure and MemoryPressure are the percentages of the last
	// ten seconds in which something waited for it.
	IOPressure     *float64 `json:"ioPressure,omitempty"`
	CPUPressure    *float64 `json:"cpuPressure,omitempty"`
	MemoryPressure *float64 `json:"memoryPressure,omitempty"`
	// ImageFilesystem is where images and containers lie.
	ImageFilesystem string   `json:"imageFilesystem,omitempty"`
	UsedPercent     *float64 `json:"usedPercent,omitempty"`
	InodesPercent   *float64 `json:"inodesPercent,omitempty"`
}

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	// Problem makes PLEG unhealthy, or will.
	Problem Severity = "problem"
	// Warning may.
	Warning Severity = "warning"
)

// Finding is a known cause that fits.
type Finding struct {
	Cause    Cause    `json:"cause"`
	Severity Severity `json:"severity"`
	// Evidence is what it is known by, Advice what to do.
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
	StuckContainer Cause = "stuck container"
	DeadContainers Cause = "too many dead containers"
	ListTooLarge   Cause = "list too large"
	NetworkPlugin  Cause = "network plugin"
	Disk           Cause = "disk"
)

// Healthy reports whether no problem was found.
func (r *Report) Healthy() bool {
	for _, f := range r.Findings {
		if f.Severity == Problem {
			return false
		}
	}
	return true
}
