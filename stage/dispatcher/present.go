package dispatcher

import (
	"cmp"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// present is the state of all pods according to the events published so far.
type present map[pleg.PodUID]*presentPod

type presentPod struct {
	labels map[string]string
	// last holds the newest ContainerStarted or ContainerDied of each
	// container and sandbox that has not been removed.
	last []pleg.Event
}

// labels returns the labels of the outcome's pod; the last known ones if it is gone.
func (p present) labels(o stage.Outcome) map[string]string {
	if o.Pod != nil {
		return o.Pod.Labels
	}
	if pod := p[o.UID]; pod != nil {
		return pod.labels
	}
	return nil
}

func (p present) apply(ev pleg.Event) {
	pod := p[ev.PodUID]
	if pod == nil {
		pod = &presentPod{}
		p[ev.PodUID] = pod
	}
	i := slices.IndexFunc(pod.last, func(e pleg.Event) bool { return e.ContainerID == ev.ContainerID })
	switch ev.Type {
	case pleg.ContainerStarted, pleg.ContainerDied:
		if i < 0 {
			pod.last = append(pod.last, ev)
		} else {
			pod.last[i] = ev
		}
	case pleg.ContainerRemoved:
		if i >= 0 {
			pod.last = slices.Delete(pod.last, i, i+1)
		}
	}
}

// settle applies what the outcome has of the pod beside its events.
func (p present) settle(o stage.Outcome) {
	if o.Pod == nil {
		delete(p, o.UID)
		return
	}
	if pod := p[o.UID]; pod != nil {
		pod.labels = o.Pod.Labels
	}
}

// replay returns the present state as events, in the order of their sequence
// numbers.
func (p present) replay(f *filter) []pleg.Event {
	var events []pleg.Event
	for _, pod := range p {
		for _, ev := range pod.last {
			if f.wants(&ev, pod.labels) {
				ev.Replayed = true
				events = append(events, ev)
			}
		}
	}
	slices.SortFunc(events, func(a, b pleg.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	return events
}

// catchUp returns what a new subscriber gets before the live events.
func (d *Dispatcher) catchUp(s *Subscription) []pleg.Event {
	mark := pleg.Event{Seq: d.seq, Epoch: d.epoch, ObservedAt: time.Now()}
	var events []pleg.Event
	switch {
	case s.after != pleg.Position{}:
		events = d.resume(s, mark)
	case s.replay:
		events = d.present.replay(&s.filter)
	default:
		return nil
	}
	mark.Type = pleg.Synced
	return append(events, mark)
}

func (d *Dispatcher) resume(s *Subscription, mark pleg.Event) []pleg.Event {
	mark.Type, mark.Reason = pleg.Gap, pleg.OtherEpoch
	if s.after.Epoch == d.epoch && s.after.Seq <= d.seq {
		events, missing, ok := d.history.after(s.after.Seq, &s.filter)
		if ok {
			return events
		}
		mark.Reason, mark.Missed = pleg.HistoryTooShort, missing
	}
	return append([]pleg.Event{mark}, d.present.replay(&s.filter)...)
}
