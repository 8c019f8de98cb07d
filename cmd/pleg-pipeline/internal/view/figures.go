package view

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Figures are the figures of all stages. Counters begin at 0 when the pipeline starts:
// the difference of two readings is a rate.
type Figures struct {
	// Epoch names the pipeline, At is the time of the reading.
	Epoch string    `json:"epoch"`
	At    time.Time `json:"at"`
	// Healthy is that of the pipeline. Reason says why not, or what works only by a
	// fallback.
	Healthy bool   `json:"healthy"`
	Reason  string `json:"reason,omitempty"`
	// Verdict is what is wrong, since when, and what to do: the same as in doctor, top, pods
	// and /readyz?verbose.
	Verdict verdict.Verdict `json:"verdict"`

	Lister     Lister     `json:"lister"`
	Hinter     Hinter     `json:"hinter"`
	Differ     Differ     `json:"differ"`
	Inspector  Inspector  `json:"inspector"`
	Dispatcher Dispatcher `json:"dispatcher"`

	// Waiting are the UIDs of pods whose change is not inspected yet, the longest wait
	// first. Overdue are the inspections in flight that take long, the oldest first.
	// Quarantined are the pods whose last inspection hung, in the order of their next
	// retry. Each has at most [MaxNamed] pods.
	Waiting     []pleg.PodUID       `json:"waiting"`
	Overdue     []OverdueInspection `json:"overdue"`
	Quarantined []QuarantinedPod    `json:"quarantined"`
}

// Lister has the figures of the lists of all pods.
type Lister struct {
	// LastList is the time at which the last successful list began; nil before that.
	// LastSeconds is how long it took, PeriodSeconds the time until the next.
	LastList      *time.Time `json:"lastList,omitempty"`
	LastSeconds   float64    `json:"lastSeconds"`
	PeriodSeconds float64    `json:"periodSeconds"`
	// RunningSeconds is the age of the current list; 0 between two lists. Call is the
	// call to the runtime that it waits for.
	RunningSeconds float64 `json:"runningSeconds"`
	Call           string  `json:"call,omitempty"`
	// Failures counts the failed lists since the last successful one; Error is that of
	// the last of them.
	Failures int    `json:"failures"`
	Error    string `json:"error,omitempty"`
	// Pods is the number of pods in the newest list.
	Pods int `json:"pods"`
	// Lists counts the lists, Errors those that failed.
	Lists  uint64 `json:"lists"`
	Errors uint64 `json:"errors"`
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
}

// Inspector has the figures of the inspections.
type Inspector struct {
	// InFlight is the number of pods being inspected. Inspectors is its limit, and Width the
	// same.
	InFlight   int `json:"inFlight"`
	Width      int `json:"width"`
	Inspectors int `json:"inspectors"`
	// Hung are inspections that others have overtaken, Abandoned are calls that ignore
	// their cancellation.
	Hung      int `json:"hung"`
	Abandoned int `json:"abandoned"`
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

// OverdueInspection is an inspection in flight that takes long.
type OverdueInspection struct {
	UID       pleg.PodUID `json:"uid"`
	Name      string      `json:"name,omitempty"`
	Namespace string      `json:"namespace,omitempty"`
	Since     time.Time   `json:"since"`
	// Hung is true if inspections that began later have ended.
	Hung bool `json:"hung"`
	// Call is the call to the runtime that it waits for, such as "ContainerStatus of
	// nginx"; empty if not known.
	Call string `json:"call,omitempty"`
}

// QuarantinedPod is a pod whose last inspection hung.
type QuarantinedPod struct {
	UID       pleg.PodUID `json:"uid"`
	Name      string      `json:"name,omitempty"`
	Namespace string      `json:"namespace,omitempty"`
	Since     time.Time   `json:"since"`
	// Hung is the number of inspections in a row that hung.
	Hung    int       `json:"hung"`
	NextTry time.Time `json:"nextTry"`
	Error   string    `json:"error,omitempty"`
}

// MaxNamed is the greatest number of pods in each list of [Figures]. The counts of the
// stages have no such limit.
const MaxNamed = 100

// ReadFigures returns the figures of a pipeline whose metrics are in gatherer, under their own
// or the kubelet's names. It does not call the runtime.
func ReadFigures(pipe *pipeline.Pipeline, gatherer prometheus.Gatherer) Figures {
	families, _ := gatherer.Gather() // with an error, what could be gathered
	f := Figures{Epoch: pipe.Epoch(), Waiting: []pleg.PodUID{}, Overdue: []OverdueInspection{}, Quarantined: []QuarantinedPod{}}
	f.addMetrics(families)
	status := pipe.Status()
	f.addStatus(status)
	f.Verdict = verdict.Of(status)
	for i, p := range pipe.Cache().Pending() {
		if i == MaxNamed {
			break
		}
		f.Waiting = append(f.Waiting, p.UID)
	}
	return f
}

// addStatus adds what the pipeline says of itself.
func (f *Figures) addStatus(s pleg.Status) {
	f.At, f.Healthy, f.Reason = s.At, s.Healthy, textOf(cmp.Or(s.Err, s.Degraded))
	f.Lister.PeriodSeconds, f.Lister.Pods = s.Relist.Period.Seconds(), s.Relist.Pods
	f.Lister.Failures, f.Lister.Error = s.Relist.Failures, textOf(s.Relist.Err)
	if !s.Relist.Success.IsZero() {
		f.Lister.LastList, f.Lister.LastSeconds = &s.Relist.Success, s.Relist.Took.Seconds()
	}
	if !s.Relist.Started.IsZero() {
		f.Lister.RunningSeconds, f.Lister.Call = s.At.Sub(s.Relist.Started).Seconds(), callText(s.Relist.Call)
	}
	f.Differ.Queue, f.Differ.Quarantined = s.Waiting, len(s.Quarantined)
	f.Inspector.InFlight, f.Inspector.Width, f.Inspector.Inspectors = s.InFlight, s.Inspectors, s.Inspectors
	for _, i := range s.Overdue {
		if i.Hung {
			f.Inspector.Hung++
		}
	}
	for _, i := range s.Overdue[:min(MaxNamed, len(s.Overdue))] {
		f.Overdue = append(f.Overdue, OverdueInspection{i.UID, i.Name, i.Namespace, i.Started, i.Hung, callText(i.Call)})
	}
	for _, q := range s.Quarantined[:min(MaxNamed, len(s.Quarantined))] {
		f.Quarantined = append(f.Quarantined, QuarantinedPod{q.UID, q.Name, q.Namespace, q.Since, q.Hung, q.NextTry, textOf(q.Err)})
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func callText(c *pleg.Call) string {
	if c == nil {
		return ""
	}
	return c.String()
}
