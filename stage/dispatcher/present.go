package dispatcher

import (
	"cmp"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// present is the state of all pods according to the events published so far. A pod in it
// never changes, so that others can read it.
type present map[pleg.PodUID]*presentPod

type presentPod struct {
	labels map[string]string
	// last contains the newest ContainerCreated, ContainerStarted or ContainerDied of each
	// container and sandbox that has not been removed.
	last []*entry
}

// labels returns the labels of a pod as it was observed; the last known ones if it is gone or
// was observed without any.
func (p present) labels(uid pleg.PodUID, observed *pleg.Pod) map[string]string {
	if known := p[uid]; known != nil && (observed == nil || observed.Labels == nil) {
		return known.labels
	}
	if observed == nil {
		return nil
	}
	return observed.Labels
}

// apply replaces a pod by its state after these events.
func (p present) apply(uid pleg.PodUID, labels map[string]string, events []entry) {
	pod := &presentPod{labels: labels}
	if known := p[uid]; known != nil {
		pod.last = append(make([]*entry, 0, len(known.last)+len(events)), known.last...)
	}
	for i := range events {
		pod.add(&events[i])
	}
	p[uid] = pod
}

func (p *presentPod) add(e *entry) {
	i := slices.IndexFunc(p.last, func(known *entry) bool { return known.event.ContainerID == e.event.ContainerID })
	switch e.event.Type {
	case pleg.ContainerCreated, pleg.ContainerStarted, pleg.ContainerDied:
		if i < 0 {
			p.last = append(p.last, e)
		} else {
			p.last[i] = e
		}
	case pleg.ContainerCorrected:
		if i >= 0 && p.last[i].event.Type != pleg.ContainerCreated {
			corrected := *p.last[i]
			corrected.event.Image, corrected.event.StartedAt = e.event.Image, e.event.StartedAt
			corrected.event.ExitCode, corrected.event.Reason, corrected.event.FinishedAt = e.event.ExitCode, e.event.Reason, e.event.FinishedAt
			p.last[i] = &corrected
		}
	case pleg.ContainerRemoved:
		if i >= 0 {
			p.last = slices.Delete(p.last, i, i+1)
		}
	}
}

// replay returns the events of the state that a filter wants, in the order of the numbers, up to
// the number of an event.
func replay(pods []*presentPod, f *filter.Filter, until uint64) []*entry {
	var wanted []*entry
	for _, pod := range pods {
		if !f.WantsLabels(pod.labels) {
			continue
		}
		for _, e := range pod.last {
			if e.event.Seq <= until && f.WantsEvent(&e.event) {
				wanted = append(wanted, e)
			}
		}
	}
	slices.SortFunc(wanted, func(a, b *entry) int { return cmp.Compare(a.event.Seq, b.event.Seq) })
	return wanted
}
