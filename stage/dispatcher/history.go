package dispatcher

import "github.com/pleg-pipeline/pleg-pipeline/pleg"

// history keeps the newest events, up to a bound, for subscribers that resume.
type history struct {
	bound   int
	entries []past // a ring once it has grown to the bound
	next    int    // where the next entry goes then
}

type past struct {
	event  pleg.Event
	labels map[string]string
}

func newHistory(bound int) *history { return &history{bound: bound} }

func (h *history) add(ev pleg.Event, labels map[string]string) {
	if len(h.entries) < h.bound {
		h.entries = append(h.entries, past{ev, labels})
		return
	}
	h.entries[h.next] = past{ev, labels}
	h.next = (h.next + 1) % h.bound
}

// after returns the events after a sequence number that the filter wants. If the
// history no longer has all events, ok is false and missing is how many it lacks.
func (h *history) after(seq uint64, f *filter) (events []pleg.Event, missing uint64, ok bool) {
	if len(h.entries) > 0 {
		if oldest := h.entries[h.next].event.Seq; seq+1 < oldest {
			return nil, oldest - 1 - seq, false
		}
	}
	for i := range h.entries {
		e := &h.entries[(h.next+i)%len(h.entries)]
		if e.event.Seq > seq && f.wants(&e.event, e.labels) {
			events = append(events, e.event)
		}
	}
	return events, 0, true
}
