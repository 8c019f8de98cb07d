package dispatcher

import (
	"cmp"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// present is the state of all pods according to the events published so far.
type present map[pleg.PodUID]*presentPod

type presentPod struct {
	labels map[string]string
	known  bool // whether the labels are
	// last holds the newest ContainerCreated, ContainerStarted or ContainerDied of each
	// container and sandbox that has not been removed.
	last []pleg.Event
}

// labels returns the labels of a pod as it was observed. If it is gone, or was listed by
// its containers alone, these are the last known ones. known is false if there are none.
func (p present) labels(uid pleg.PodUID, observed *pleg.Pod) (labels map[string]string, known bool) {
	if observed != nil && hasLabels(observed) {
		return observed.Labels, true
	}
	if pod := p[uid]; pod != nil {
		return pod.labels, pod.known
	}
	return nil, false
}

// isUnlabelled reports whether events of a pod were published without its labels.
func (p present) isUnlabelled(uid pleg.PodUID) bool {
	pod := p[uid]
	return pod != nil && !pod.known
}

func (p present) apply(ev pleg.Event) {
	pod := p[ev.PodUID]
	if pod == nil {
		pod = &presentPod{}
		p[ev.PodUID] = pod
	}
	i := slices.IndexFunc(pod.last, func(e pleg.Event) bool { return e.ContainerID == ev.ContainerID })
	switch ev.Type {
	case pleg.ContainerCreated, pleg.ContainerStarted, pleg.ContainerDied:
		if i < 0 {
			pod.last = append(pod.last, ev)
		} else {
			pod.last[i] = ev
		}
	case pleg.ContainerCorrected:
		if i >= 0 && pod.last[i].Type == pleg.ContainerDied {
			pod.last[i].ExitCode, pod.last[i].Reason, pod.last[i].FinishedAt = ev.ExitCode, ev.Reason, ev.FinishedAt
		}
	case pleg.ContainerRemoved:
		if i >= 0 {
			pod.last = slices.Delete(pod.last, i, i+1)
		}
	}
}

// settle applies what an outcome has of the pod beside its events.
func (p present) settle(uid pleg.PodUID, gone bool, labels map[string]string, known bool) {
	if gone {
		delete(p, uid)
		return
	}
	if pod := p[uid]; pod != nil {
		pod.labels, pod.known = labels, known
	}
}

// replayed returns the present state as replayed events, in the order of their sequence
// numbers.
func (p present) replayed() []past {
	var all []past
	for _, pod := range p {
		for _, ev := range pod.last {
			ev.Replayed = true
			all = append(all, past{ev, pod.labels, pod.known})
		}
	}
	slices.SortFunc(all, func(a, b past) int { return cmp.Compare(a.event.Seq, b.event.Seq) })
	return all
}

// replay adds the present state to what a new subscriber gets, as far as it is older than
// an event.
func (d *Dispatcher) replay(events []held, f *filter.Filter, until uint64) []held {
	if d.replayed == nil {
		d.replayed = d.present.replayed()
	}
	for i := range d.replayed {
		e := &d.replayed[i]
		if e.event.Seq > until {
			break
		}
		events = appendWanted(events, f, e.event, e.labels, e.known)
	}
	return events
}

// appendWanted adds an event if the subscriber wants it, or may want it.
func appendWanted(events []held, f *filter.Filter, ev pleg.Event, labels map[string]string, known bool) []held {
	unlabelled := !known && f.Selector != nil
	if f.WantsEvent(&ev) && (unlabelled || f.WantsLabels(labels)) {
		events = append(events, held{ev, unlabelled})
	}
	return events
}

// catchUp delivers what a new subscriber gets before the live events. Synced follows
// later if the initial state is not complete.
func (d *Dispatcher) catchUp(s *Subscription) {
	mark := pleg.Event{Seq: d.seq, Epoch: d.epoch, ObservedAt: time.Now()}
	if !s.since.IsZero() {
		s.after = pleg.Position{Epoch: d.epoch, Seq: d.history.before(s.since, d.seq)}
	}
	switch {
	case s.after != pleg.Position{}:
		s.held = d.resume(s, mark)
	case s.replay:
		s.held = d.replay(d.scratch, &s.filter, d.seq)
	default:
		return
	}
	d.deliverHeld(s, mark)
}

// startOver gives a subscriber that missed events of too many pods the present state.
func (d *Dispatcher) startOver(s *Subscription) {
	mark := pleg.Event{Seq: d.seq, Epoch: d.epoch, ObservedAt: time.Now()}
	gap := mark
	gap.Type, gap.Reason, gap.Missed = pleg.Gap, pleg.HistoryTooShort, s.missed.lost
	s.missed, s.owed, s.replay = newMissed(), nil, true
	s.held = d.replay(append(d.scratch, held{event: gap}), &s.filter, d.seq)
	d.deliverHeld(s, mark)
}

// deliverHeld delivers what a subscriber is given at once, and then Synced.
func (d *Dispatcher) deliverHeld(s *Subscription, mark pleg.Event) {
	if s.syncing = !d.complete; !s.syncing {
		mark.Type = pleg.Synced
		s.held = append(s.held, held{event: mark})
	}
	d.scratch = s.held[:0]
	if d.release(s, func(*pleg.Event) bool { return false }); s.held != nil {
		s.held = slices.Clone(s.held)
	}
}

// resume returns the events after the subscriber's position; if it asked for a replay too,
// after what has not changed since. If they are not all there, it returns the present state.
func (d *Dispatcher) resume(s *Subscription, mark pleg.Event) []held {
	mark.Type, mark.Reason = pleg.Gap, pleg.OtherEpoch
	if s.after.Epoch == d.epoch && s.after.Seq <= d.seq {
		events := d.scratch
		if s.replay {
			events = d.replay(events, &s.filter, s.after.Seq)
		}
		events, missing, ok := d.history.after(events, s.after.Seq, &s.filter)
		if ok {
			return events
		}
		mark.Reason, mark.Missed = pleg.HistoryTooShort, missing
	}
	s.replay = true
	return d.replay(append(d.scratch, held{event: mark}), &s.filter, d.seq)
}
