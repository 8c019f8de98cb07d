package dispatcher

import (
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// A runtime lists sandboxes and containers one after the other, so a new pod may be
// listed by its containers alone. Its labels are those of its sandbox: nobody knows
// them yet. A subscriber with a selector then waits for them, with its own events only;
// the next listing has the sandbox.

// held is an event that waits for labels, or behind one that does.
type held struct {
	event pleg.Event
	// unlabelled is set until the labels of the pod are known.
	unlabelled bool
}

// hasLabels reports whether the labels of a pod are known, which may be none.
func hasLabels(pod *pleg.Pod) bool { return pod.Labels != nil || len(pod.Sandboxes) > 0 }

// hold keeps an event for a subscriber that waits for labels. It reports whether it
// does; a subscriber that is behind anyway gets a PodSync instead.
func (d *Dispatcher) hold(s *Subscription, ev *pleg.Event, unlabelled bool) bool {
	if s.missed.any() || len(s.held) == 0 && !unlabelled {
		return false
	}
	s.held = append(s.held, held{*ev, unlabelled})
	if len(s.held) > s.buffer {
		d.release(s, func(*pleg.Event) bool { return true })
	}
	return true
}

// resolveLabels decides which held events of a pod the subscribers want, now that its
// labels are known, and has the history know them.
func (d *Dispatcher) resolveLabels(uid pleg.PodUID, labels map[string]string) {
	d.history.label(uid, labels)
	for _, s := range d.subscribers {
		if len(s.held) == 0 {
			continue
		}
		s.held = slices.DeleteFunc(s.held, func(h held) bool {
			return h.unlabelled && h.event.PodUID == uid && !s.filter.WantsLabels(labels)
		})
		for i := range s.held {
			if s.held[i].event.PodUID == uid {
				s.held[i].unlabelled = false
			}
		}
		d.release(s, func(*pleg.Event) bool { return false })
	}
}

// giveUpLabels ends the wait for labels that a newer listing did not have either. The
// subscriber gets a PodSync, because nobody knows whether it wants the event.
func (d *Dispatcher) giveUpLabels(mark stage.Mark) {
	for _, s := range d.subscribers {
		if len(s.held) > 0 {
			d.release(s, func(ev *pleg.Event) bool {
				return mark.Current.After(ev.ObservedAt) &&
					!slices.ContainsFunc(mark.Behind, func(b stage.Behind) bool { return b.Pod.UID == ev.PodUID })
			})
		}
	}
}

// release replaces the unlabelled events for which giveUp is true, and delivers all if
// none is left.
func (d *Dispatcher) release(s *Subscription, giveUp func(*pleg.Event) bool) {
	for i := range s.held {
		h := &s.held[i]
		if h.unlabelled && giveUp(&h.event) {
			*h = held{event: (&miss{last: h.event, count: 1}).podSync()}
		}
	}
	if slices.ContainsFunc(s.held, func(h held) bool { return h.unlabelled }) {
		return
	}
	s.pending = slices.Grow(s.pending, len(s.held))
	for _, h := range s.held {
		s.pending = append(s.pending, h.event)
	}
	s.held = nil
	d.feed(s)
}
