package view

import (
	"context"
	"fmt"
	"strings"
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
	// Verdict names the problem, its beginning, and what to do: the same as in doctor, top, pods
	// and /readyz?verbose.
	Verdict verdict.Verdict `json:"verdict"`

	Lister     Lister     `json:"lister"`
	Hinter     Hinter     `json:"hinter"`
	Differ     Differ     `json:"differ"`
	Inspector  Inspector  `json:"inspector"`
	Dispatcher Dispatcher `json:"dispatcher"`

	// Waiting are the UIDs of pods whose change is not inspected yet, hung pods included, the
	// longest wait first; at most [MaxNamed].
	Waiting []pleg.PodUID `json:"waiting"`
}

// Lister contains the figures of the lists of all pods.
type Lister struct {
	// LastList is the time at which the last successful list began; nil before that.
	// LastSeconds is how long it took, PeriodSeconds the time until the next.
	LastList      *time.Time `json:"lastList,omitempty"`
	LastSeconds   float64    `json:"lastSeconds"`
	PeriodSeconds float64    `json:"periodSeconds"`
	// Late is true if the last successful list is older than a list that was due.
	Late bool `json:"late"`
	// RunningSeconds is the age of the current list; 0 between two lists.
	RunningSeconds float64 `json:"runningSeconds"`
	// Failures counts the failed lists since the last success.
	Failures int `json:"failures"`
	// Lists counts the lists, Errors the failed ones.
	Lists  uint64 `json:"lists"`
	Errors uint64 `json:"errors"`
}

// Hinter contains the figures of CRI events.
type Hinter struct {
	// Stream is the state of the event stream: up, down, or off if it was never opened.
	Stream    string `json:"stream"`
	CRIEvents uint64 `json:"criEvents"`
}

// Differ contains the figures of the records.
type Differ struct {
	// Queue is the number of changed pods that wait for an inspector.
	Queue       int `json:"queue"`
	Quarantined int `json:"quarantined"`
}

// Inspector contains the figures of the inspections.
type Inspector struct {
	// InFlight is the number of pods being inspected, Inspectors its limit, and Slots a text with
	// both. Hung are inspections that others have overtaken.
	InFlight   int    `json:"inFlight"`
	Inspectors int    `json:"inspectors"`
	Slots      string `json:"slots"`
	Hung       int    `json:"hung"`
	// Inspections counts the inspections that ended, InspectionSeconds is the sum of their
	// durations, Errors counts the failed ones.
	Inspections       uint64  `json:"inspections"`
	InspectionSeconds float64 `json:"inspectionSeconds"`
	Errors            uint64  `json:"errors"`
}

// Dispatcher contains the figures of the delivery.
type Dispatcher struct {
	Events      uint64 `json:"events"`
	Missed      uint64 `json:"missed"` // by subscribers
	Subscribers int    `json:"subscribers"`
}

// lateAfter is the least age of the last list at which the pods are shown as old.
const lateAfter = 10 * time.Second

// MaxNamed is the greatest number of pods that [Figures] name.
const MaxNamed = 100

// ReadFigures returns the figures of a pipeline whose metrics are in gatherer, under their own
// or the kubelet's names. It does not call the runtime.
func ReadFigures(ctx context.Context, pipe *pipeline.Pipeline, gatherer prometheus.Gatherer) Figures {
	families, _ := gatherer.Gather() // after an error, the metrics that could be gathered
	f := Figures{Epoch: pipe.Epoch(), Waiting: []pleg.PodUID{}}
	f.addMetrics(families)
	status, _ := pipe.Status(ctx)
	f.addStatus(status)
	f.Verdict = verdict.Of(status)
	waiting := pipe.Cache().Pending()
	for _, p := range waiting[:min(MaxNamed, len(waiting))] {
		f.Waiting = append(f.Waiting, p.UID)
	}
	return f
}

// addStatus adds the figures of the pipeline's status.
func (f *Figures) addStatus(s pleg.Status) {
	f.At = s.At
	f.Lister.PeriodSeconds, f.Lister.Failures = s.Relist.Period.Seconds(), s.Relist.Failures
	if !s.Relist.Success.IsZero() {
		f.Lister.LastList, f.Lister.LastSeconds = &s.Relist.Success, s.Relist.Took.Seconds()
		f.Lister.Late = s.At.Sub(s.Relist.Success) > max(lateAfter, 3*s.Relist.Period)
	}
	if !s.Relist.Started.IsZero() {
		f.Lister.RunningSeconds = s.At.Sub(s.Relist.Started).Seconds()
	}
	f.Differ.Queue, f.Differ.Quarantined = s.Waiting, len(s.Quarantined)
	f.Inspector.InFlight, f.Inspector.Inspectors, f.Inspector.Slots = s.InFlight, s.Inspectors, Slots(s)
	f.Inspector.Hung, _ = CountHung(s)
}

// Slots says how many of the slots are taken, and which inspections take long. Hung
// inspections do not count towards the bound, so there may be more.
func Slots(s pleg.Status) string {
	text := fmt.Sprintf("%d of %d", min(s.InFlight, s.Inspectors), s.Inspectors)
	var why []string
	hung, _ := CountHung(s)
	if hung > 0 {
		why = append(why, fmt.Sprintf("%d hung", hung))
	}
	if slow := len(s.Overdue) - hung; slow > 0 {
		why = append(why, fmt.Sprintf("%d slow", slow))
	}
	if extra := s.InFlight - s.Inspectors; extra > 0 {
		return fmt.Sprintf("%s + %d beside %s", text, extra, strings.Join(why, " and "))
	}
	return strings.Join(append([]string{text}, why...), ", ")
}

// CountHung returns the number of hung inspections in flight, and the number of pods whose current
// or last inspection hung.
func CountHung(s pleg.Status) (inspections, pods int) {
	uids := make(map[pleg.PodUID]bool)
	for _, i := range s.Overdue {
		if i.Hung {
			inspections++
			uids[i.UID] = true
		}
	}
	for _, q := range s.Quarantined {
		uids[q.UID] = true
	}
	return inspections, len(uids)
}
