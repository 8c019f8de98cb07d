package dispatcher

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// history keeps the newest events, up to a bound, for subscribers that resume.
type history struct {
	bound   int
	entries []past // a ring once it has grown to the bound
	next    int    // where the next entry goes then
	newest  uint64 // the number of the last event
}

type past struct {
	event  pleg.Event
	labels map[string]string
	known  bool // whether the labels are
}

func newHistory(bound int) *history { return &history{bound: bound} }

func (h *history) add(p past) {
	h.newest = p.event.Seq
	switch {
	case h.bound == 0:
		return
	case len(h.entries) < h.bound:
		h.entries = append(h.entries, p)
		return
	}
	h.entries[h.next] = p
	h.next = (h.next + 1) % h.bound
}

// label sets the labels of a pod's events that were published before they were known.
func (h *history) label(uid pleg.PodUID, labels map[string]string) {
	for i := range h.entries {
		if e := &h.entries[i]; e.event.PodUID == uid && !e.known {
			e.labels, e.known = labels, true
		}
	}
}

// before returns the number before the oldest event of a time or later; last, the number of
// the newest event, if there is none.
func (h *history) before(since time.Time, last uint64) uint64 {
	for i := range h.entries {
		if e := &h.entries[(h.next+i)%len(h.entries)].event; !e.ObservedAt.Before(since) {
			return e.Seq - 1
		}
	}
	return last
}

// after adds the events after a sequence number that the filter wants. If the history no
// longer has all events, it adds none, ok is false and missing is how many it lacks.
func (h *history) after(events []held, seq uint64, f *filter.Filter) (_ []held, missing uint64, ok bool) {
	oldest := h.newest + 1
	if len(h.entries) > 0 {
		oldest = h.entries[h.next].event.Seq
	}
	if seq+1 < oldest {
		return events, oldest - 1 - seq, false
	}
	for i := range h.entries {
		e := &h.entries[(h.next+i)%len(h.entries)]
		if e.event.Seq > seq {
			events = appendWanted(events, f, e.event, e.labels, e.known)
		}
	}
	return events, 0, true
}
