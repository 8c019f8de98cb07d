// Package figures reads what the stages of a pipeline do at one moment. The page and
// the command top show it. Its JSON form is an output of the program.
package figures

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Figures are the figures of all stages. Counters begin at 0 when the pipeline starts:
// the difference of two readings is a rate.
type Figures struct {
	// Epoch names the pipeline, At is the time of the reading.
	Epoch string    `json:"epoch"`
	At    time.Time `json:"at"`
	// Healthy is that of the pipeline. Reason says why not, or what works only in a
	// roundabout way.
	Healthy bool   `json:"healthy"`
	Reason  string `json:"reason,omitempty"`

	Lister     Lister     `json:"lister"`
	Hinter     Hinter     `json:"hinter"`
	Differ     Differ     `json:"differ"`
	Inspector  Inspector  `json:"inspector"`
	Dispatcher Dispatcher `json:"dispatcher"`

	// Waiting are the pods whose change is not inspected yet, the longest wait first.
	// Quarantined are the pods whose last inspection hung, in the order of their next
	// retry. Both have at most [MaxPods] pods.
	Waiting     []Waiting     `json:"waiting"`
	Quarantined []Quarantined `json:"quarantined"`
}

// Lister has the figures of the lists of all pods.
type Lister struct {
	// LastList is the time at which the last successful list began; nil before that.
	LastList *time.Time `json:"lastList,omitempty"`
	// RunningSeconds is the age of the current list; 0 between two lists.
	RunningSeconds float64 `json:"runningSeconds"`
	// Lists counts the lists, ListSeconds is the sum of their durations, Errors counts
	// those that failed.
	Lists       uint64  `json:"lists"`
	ListSeconds float64 `json:"listSeconds"`
	Errors      uint64  `json:"errors"`
}

// Hinter has the figures of CRI events and single-pod relists.
type Hinter struct {
	// StreamUp and StreamDoubted are the state of the event stream. Opened counts how
	// often it was opened: 0 means that there is none.
	StreamUp      bool   `json:"streamUp"`
	StreamDoubted bool   `json:"streamDoubted"`
	Opened        uint64 `json:"opened"`
	CRIEvents     uint64 `json:"criEvents"`
	PodRelists    uint64 `json:"podRelists"`
}

// Differ has the figures of the records.
type Differ struct {
	// Queue is the number of changed pods that wait for an inspector.
	Queue       int `json:"queue"`
	Quarantined int `json:"quarantined"`
	RunningPods int `json:"runningPods"`
}

// Inspector has the figures of the inspections.
type Inspector struct {
	// InFlight is the number of pods being inspected, out of Width, the current limit.
	InFlight int `json:"inFlight"`
	Width    int `json:"width"`
	// Hung are inspections older than Options.HungAfter, Abandoned are calls that
	// ignore their cancellation, OldestSeconds is the age of the oldest of all.
	Hung          int     `json:"hung"`
	Abandoned     int     `json:"abandoned"`
	OldestSeconds float64 `json:"oldestSeconds"`
	// Inspections counts those that ended, InspectionSeconds is the sum of their
	// durations, Errors counts those that failed.
	Inspections       uint64  `json:"inspections"`
	InspectionSeconds float64 `json:"inspectionSeconds"`
	Errors            uint64  `json:"errors"`
}

// Dispatcher has the figures of the delivery.
type Dispatcher struct {
	Events      uint64 `json:"events"`
	Discarded   uint64 `json:"discarded"`
	Subscribers int    `json:"subscribers"`
}

// Waiting is a pod whose change is not inspected yet.
type Waiting struct {
	UID       pleg.PodUID `json:"uid"`
	Name      string      `json:"name,omitempty"`
	Namespace string      `json:"namespace,omitempty"`
	Since     time.Time   `json:"since"`
}

// Quarantined is a pod whose last inspection hung.
type Quarantined struct {
	UID       pleg.PodUID `json:"uid"`
	Name      string      `json:"name,omitempty"`
	Namespace string      `json:"namespace,omitempty"`
	Since     time.Time   `json:"since"`
	// Hung is the number of inspections in a row that hung.
	Hung    int       `json:"hung"`
	NextTry time.Time `json:"nextTry"`
	Error   string    `json:"error,omitempty"`
}

// MaxPods is the greatest number of pods in [Figures.Waiting] and in
// [Figures.Quarantined]. The counts of the stages have no such limit.
const MaxPods = 100

// Read returns the figures of a pipeline whose metrics are in gatherer, under their own
// or the kubelet's names. It does not call the runtime.
func Read(pipe *pipeline.Pipeline, gatherer prometheus.Gatherer) Figures {
	families, _ := gatherer.Gather() // with an error, what could be gathered
	f := FromMetrics(families)
	f.Epoch, f.At = pipe.Epoch(), time.Now()
	healthy, err := pipe.Healthy()
	f.Healthy = healthy
	if err != nil {
		f.Reason = err.Error()
	}
	f.Waiting, f.Quarantined = []Waiting{}, []Quarantined{}
	for _, p := range pipe.Cache().Pending() {
		if len(f.Waiting) == MaxPods {
			break
		}
		w := Waiting{UID: p.UID, Since: p.Since}
		if p.Status != nil {
			w.Name, w.Namespace = p.Status.Name, p.Status.Namespace
		}
		f.Waiting = append(f.Waiting, w)
	}
	for _, p := range pipe.Quarantined() {
		if len(f.Quarantined) == MaxPods {
			break
		}
		q := Quarantined{UID: p.UID, Name: p.Name, Namespace: p.Namespace, Since: p.Since, Hung: p.Hung, NextTry: p.NextTry}
		if p.Err != nil {
			q.Error = p.Err.Error()
		}
		f.Quarantined = append(f.Quarantined, q)
	}
	return f
}
