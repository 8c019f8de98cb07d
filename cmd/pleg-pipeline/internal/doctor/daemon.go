package doctor

import (
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Daemon is what the daemon of a node knows. It has watched for longer than an
// examination.
type Daemon struct {
	Socket  string `json:"socket"`
	Healthy bool   `json:"healthy"`
	Reason  string `json:"reason,omitempty"`
	// LastListSeconds is the age of the last successful list; 0 before the first.
	LastListSeconds float64 `json:"lastListSeconds"`
	Pods            int     `json:"pods"`
	// FailingSeconds is for how long lists have failed.
	FailingSeconds float64 `json:"failingSeconds,omitempty"`
	// Hung are the inspections that take long or hung before.
	Hung []HungInspection `json:"hung,omitempty"`
}

// HungInspection is a pod whose inspection by the daemon hangs.
type HungInspection struct {
	Pod       string  `json:"pod"`
	PodUID    string  `json:"podUID"`
	Call      string  `json:"call,omitempty"`
	Container string  `json:"container,omitempty"`
	Seconds   float64 `json:"seconds"`
	// InFlight is false if the pod waits for its next inspection.
	InFlight bool `json:"inFlight"`
}

// NewDaemon returns what the status of a daemon says. Its inspections that are older
// than hungAfter count.
func NewDaemon(socket string, s pleg.Status, hungAfter time.Duration) *Daemon {
	d := &Daemon{Socket: socket, Healthy: s.Healthy, Pods: s.Relist.Pods}
	if s.Err != nil {
		d.Reason = s.Err.Error()
	} else if s.Relist.Err != nil {
		d.Reason = s.Relist.Err.Error()
	}
	if !s.Relist.Success.IsZero() {
		d.LastListSeconds = s.At.Sub(s.Relist.Success).Seconds()
	}
	if s.Relist.Failures > 0 {
		d.FailingSeconds = s.At.Sub(s.Relist.Failing).Seconds()
	}
	since := make(map[pleg.PodUID]time.Time)
	for _, q := range s.Quarantined {
		since[q.UID] = q.Since
	}
	inFlight := make(map[pleg.PodUID]bool)
	for _, i := range s.Overdue {
		began := i.Started
		if first, ok := since[i.UID]; ok && first.Before(began) {
			began = first
		}
		if !i.Hung && s.At.Sub(began) < hungAfter {
			continue
		}
		inFlight[i.UID] = true
		hung := HungInspection{Pod: i.Namespace + "/" + i.Name, PodUID: string(i.UID), Seconds: s.At.Sub(began).Seconds(), InFlight: true}
		if i.Call != nil {
			hung.Call, hung.Container = i.Call.Method, i.Call.Container
		}
		d.Hung = append(d.Hung, hung)
	}
	for _, q := range s.Quarantined {
		if !inFlight[q.UID] {
			d.Hung = append(d.Hung, HungInspection{Pod: q.Namespace + "/" + q.Name, PodUID: string(q.UID), Seconds: s.At.Sub(q.Since).Seconds()})
		}
	}
	return d
}

// health describes the daemon in a few words.
func (d *Daemon) health() string {
	switch {
	case !d.Healthy:
		return "not healthy: " + d.Reason
	case d.FailingSeconds > 0:
		return fmt.Sprintf("its lists have failed for %s: %s", span(d.FailingSeconds), d.Reason)
	case d.Reason != "":
		return "healthy, but " + d.Reason
	}
	return fmt.Sprintf("healthy, last list %s ago", span(d.LastListSeconds))
}

// span returns a duration in one unit.
func span(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	default:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
}
