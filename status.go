package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Status returns what the pipeline does at present, and what it waits for: the list and
// the inspections in flight, with the runtime call that each waits for if Runtime is a
// [pleg.Reporter]. Status does not block.
func (p *Pipeline) Status() pleg.Status {
	r, inspections := p.runtime.Report(), p.inspector.State()
	s := pleg.Status{
		At: time.Now(), Endpoint: r.Endpoint, Stuck: r.Stuck, Unread: r.Unread, Disk: r.Disk, Troubles: r.Troubles, Relist: p.lister.Status(), Inspectors: p.opts.Inspectors,
		InFlight: inspections.InFlight, Overdue: slices.Clone(inspections.Overdue), Quarantined: slices.Clone(p.differ.Quarantined()),
	}
	pending := p.cache.Pending()
	s.Waiting = len(pending)
	if s.Healthy, s.Err = p.Healthy(); s.Healthy {
		s.Degraded = r.Degraded
	}
	s.InspectionTook = p.recent.Took(s.At, p.ages.Answering(s))
	s.Failed = failed(s, pending)
	s.Contradictions = slices.Clone(inspections.Contradictions)
	if !s.Relist.Success.IsZero() {
		s.Relist.Pods = p.cache.Len() // lists of single pods know later ones
	}
	p.ages.Complete(&s)
	if s.Relist.Failures > 0 || !s.Relist.Started.IsZero() || len(s.Overdue) > 0 {
		s.Runtime = r.Process
	}
	if !s.Relist.Started.IsZero() {
		s.Relist.Call = border.CallOf(r.Calls, "")
	}
	for n := range s.Overdue {
		s.Overdue[n].Call = border.CallOf(r.Calls, s.Overdue[n].UID)
	}
	for n := range s.Quarantined { // a call that ignores its cancellation
		q := &s.Quarantined[n]
		q.Call = cmp.Or(border.CallOf(r.Calls, q.UID), q.Call)
	}
	return s
}

// failed returns the pods whose last inspection failed, except pods that hang.
func failed(s pleg.Status, pending []cache.Pending) (failed []pleg.Failed) {
	for _, pending := range pending {
		uid := pending.UID
		hangs := slices.ContainsFunc(s.Quarantined, func(q pleg.Quarantined) bool { return q.UID == uid }) ||
			slices.ContainsFunc(s.Overdue, func(i pleg.Inspection) bool { return i.UID == uid })
		if pending.Err != nil && !hangs {
			failed = append(failed, pleg.Failed{UID: uid, Namespace: pending.Pod.Namespace, Name: pending.Pod.Name, Since: pending.Since, Err: pending.Err})
		}
	}
	return failed
}

// Healthy reports whether the pipeline works, and if not, why. It does not block. What works only
// by a fallback is in [Pipeline.Status]. Healthy returns false
//
//   - before the first successful relist;
//   - if the last successful relist began longer ago than Options.RelistThreshold, as the
//     kubelet's PLEG does;
//   - if at least two pods wait for an inspection, and for RelistThreshold no inspection has
//     succeeded, or failed in less than a second.
func (p *Pipeline) Healthy() (bool, error) {
	if ok, err := p.lister.Healthy(); !ok {
		return false, err
	}
	err := p.stalled()
	return err == nil, err
}

// stalled returns an error if pods wait and the runtime answers no inspection.
func (p *Pipeline) stalled() error {
	const named = 3
	waiting := p.cache.Pending()
	if len(waiting) < 2 {
		return nil
	}
	since := waiting[1].Since
	if answered := p.inspector.State().Answered; answered.After(since) {
		since = answered
	}
	elapsed := time.Since(since)
	if elapsed <= p.opts.RelistThreshold {
		return nil
	}
	var names []string
	for _, pending := range waiting[:min(named, len(waiting))] {
		names = append(names, pending.Pod.Namespace+"/"+pending.Pod.Name)
	}
	if more := len(waiting) - named; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("no inspection has succeeded for %v; threshold is %v; these pods wait: %s",
		elapsed.Round(time.Second), p.opts.RelistThreshold, strings.Join(names, ", "))
}
