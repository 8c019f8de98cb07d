// Package encoded keeps the encoded form of the newest events, which many subscribers get.
package encoded

import (
	"sync/atomic"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// kept is the number of events that are kept. For a subscriber that is further behind, an
// event is encoded again.
const kept = 64

// Events are encoded events. They are safe for concurrent use; the zero value is empty.
type Events struct {
	slots [kept]atomic.Pointer[event]
}

type event struct {
	pleg.Event
	text []byte
}

// Get returns what encode returns for ev, or returned for an equal event before. Nobody may
// change it. A replayed event is not kept: it has the number of a past one. Nor is one
// with a status, which may be large.
func (e *Events) Get(ev pleg.Event, encode func(pleg.Event) ([]byte, error)) ([]byte, error) {
	slot := &e.slots[ev.Seq%kept]
	if made := slot.Load(); made != nil && made.Event == ev {
		return made.text, nil
	}
	text, err := encode(ev)
	if err == nil && !ev.Replayed && ev.Status == nil {
		slot.Store(&event{ev, text})
	}
	return text, err
}
