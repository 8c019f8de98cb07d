package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Status returns the present work of the pipeline: the list and the inspections in flight, with the
// runtime call that each waits for if Runtime is a [pleg.Reporter]. Status does not block, and the
// error is nil.
func (p *Pipeline) Status(context.Context) (pleg.Status, error) { return p.status(), nil }

func (p *Pipeline) status() pleg.Status {
	r, inspections := p.runtime.Report(), p.inspector.State()
	s := pleg.Status{
		At: time.Now(), Endpoint: r.Endpoint, Troubles: r.Troubles, Details: r.Details, Relist: p.lister.Status(), Inspectors: p.opts.Inspectors,
		InFlight: inspections.InFlight, Overdue: slices.Clone(inspections.Overdue), Quarantined: slices.Clone(p.differ.Quarantined()),
	}
	waiting := p.cache.Waiting()
	s.Waiting = waiting.Pods
	if s.Healthy, s.Err = p.healthy(waiting); s.Healthy {
		s.Degraded = r.Degraded
	}
	s.InspectionTook = p.recent.Took(s.At, p.ages.Answering(s))
	s.Failed = failed(s, waiting.Failed)
	s.Contradictions = slices.Clone(inspections.Contradictions)
	s.Relist.Pods = p.cache.Len() // lists of single pods know later ones
	p.ages.Complete(&s)
	if s.Relist.Failures == 0 && s.Relist.Started.IsZero() && len(s.Overdue) == 0 {
		nodestate.Change(&s.Details, func(n *nodestate.State) { n.Process = nil })
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
func failed(s pleg.Status, all []cache.Pending) (failed []pleg.Failed) {
	for _, pending := range all {
		uid := pending.UID
		hangs := slices.ContainsFunc(s.Quarantined, func(q pleg.Quarantined) bool { return q.UID == uid }) ||
			slices.ContainsFunc(s.Overdue, func(i pleg.Inspection) bool { return i.UID == uid })
		if !hangs {
			failed = append(failed, pleg.Failed{UID: uid, Namespace: pending.Pod.Namespace, Name: pending.Pod.Name, Since: pending.Since, Err: pending.Err})
		}
	}
	return failed
}

// Healthy reports whether the pipeline works, and if not, why. It does not block. [Pipeline.Status]
// names the parts that work only by a fallback. Healthy returns false
//
//   - before the first successful relist;
//   - if the last successful relist began longer ago than Options.RelistThreshold, as the
//     kubelet's PLEG does;
//   - if at least two pods wait for an inspection, and for RelistThreshold no inspection has
//     succeeded, or failed in less than a second.
func (p *Pipeline) Healthy() (bool, error) { return p.healthy(p.cache.Waiting()) }

func (p *Pipeline) healthy(waiting podcache.Waiting) (bool, error) {
	if ok, err := p.lister.Healthy(); !ok {
		return false, err
	}
	err := p.stalled(waiting)
	return err == nil, err
}

// stalled returns an error if pods wait and the runtime answers no inspection.
func (p *Pipeline) stalled(waiting podcache.Waiting) error {
	if waiting.Pods < 2 {
		return nil
	}
	since := waiting.First[1].Since
	if answered := p.inspector.State().Answered; answered.After(since) {
		since = answered
	}
	elapsed := time.Since(since)
	if elapsed <= p.opts.RelistThreshold {
		return nil
	}
	var names []string
	for _, pending := range waiting.First {
		names = append(names, pending.Pod.Namespace+"/"+pending.Pod.Name)
	}
	if more := waiting.Pods - len(waiting.First); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("no inspection has succeeded for %v; threshold is %v; these pods wait: %s",
		elapsed.Round(time.Second), p.opts.RelistThreshold, strings.Join(names, ", "))
}
