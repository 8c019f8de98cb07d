package dispatcher

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// applyMark passes a mark of the differ on. The first one says that the initial state
// is complete, for which Synced has waited.
func (d *Dispatcher) applyMark(m stage.Mark) {
	d.admit()
	for _, caller := range m.Relisted {
		caller <- nil
	}
	if m.Current.IsZero() {
		return
	}
	d.giveUpLabels(m)
	if !d.complete {
		d.complete = true
		for _, s := range d.subscribers {
			if s.syncing {
				s.owe(pleg.Event{Type: pleg.Synced, Seq: d.seq, Epoch: d.epoch, ObservedAt: time.Now()})
				d.feed(s)
			}
		}
	}
	now := d.now()
	for _, s := range d.subscribers {
		if s.bookmarks && s.live() {
			s.send(&pleg.Event{Seq: d.seq, Type: pleg.Bookmark, ObservedAt: d.currentFor(s, m), Epoch: d.epoch}, now)
		}
	}
}

// currentFor returns the time of the newest listing of which everything about the
// subscriber's pods has been published; zero if there is none.
func (d *Dispatcher) currentFor(s *Subscription, m stage.Mark) time.Time {
	for _, b := range m.Behind {
		labels, known := d.present.labels(b.Pod.UID, b.Pod)
		if s.filter.MayWantPod(b.Pod.Namespace, b.Pod.UID) && (!known || s.filter.WantsLabels(labels)) {
			return b.Until
		}
	}
	return m.Current
}

// owe arranges that a mark is delivered after everything that waits for the subscriber.
func (s *Subscription) owe(mark pleg.Event) {
	s.syncing = false
	switch {
	case len(s.held) > 0:
		s.held = append(s.held, held{event: mark})
	case s.missed.any():
		s.owed = &mark
	default:
		s.pending = append(s.pending, mark)
	}
}

// endMark returns the mark for what a subscriber will not get because the pipeline
// ends, if there is anything.
func (d *Dispatcher) endMark(s *Subscription) *pleg.Event {
	missed := s.missed.events()
	for _, ev := range s.pending {
		missed += standsFor(&ev)
	}
	for _, h := range s.held {
		missed += standsFor(&h.event)
	}
	if missed == 0 {
		return nil
	}
	return &pleg.Event{Seq: d.seq, Type: pleg.Gap, Reason: pleg.Stopped, Missed: missed, Epoch: d.epoch, ObservedAt: time.Now()}
}

// standsFor returns the number of events that an undelivered one stands for.
func standsFor(ev *pleg.Event) uint64 {
	switch {
	case ev.PodUID == "": // a mark
		return 0
	case ev.Missed > 0:
		return ev.Missed
	default:
		return 1
	}
}
