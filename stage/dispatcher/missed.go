package dispatcher

import (
	"container/list"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxMissed bounds the pods with events that a subscriber missed. If there are more, most are
// gone: the present state then costs less than the repair of each.
const maxMissed = 4096

// missed is what a subscriber missed: one entry for each pod, whatever the number of
// events, ordered by the last event. Repairs in this order have growing sequence
// numbers.
type missed struct {
	byPod map[pleg.PodUID]*list.Element
	order *list.List
	// lost is the number of events if there were too many pods; there are no entries then.
	lost uint64
}

// miss stands for the events of one pod that a subscriber missed.
type miss struct {
	last  pleg.Event
	count uint64
}

func newMissed() missed {
	return missed{byPod: make(map[pleg.PodUID]*list.Element), order: list.New()}
}

func (m *missed) any() bool { return m.lost > 0 || m.order.Len() > 0 }

func (m *missed) events() uint64 {
	n := m.lost
	for e := m.order.Front(); e != nil; e = e.Next() {
		n += e.Value.(*miss).count
	}
	return n
}

func (m *missed) add(ev *pleg.Event) {
	if m.lost == 0 && m.byPod[ev.PodUID] == nil && m.order.Len() == maxMissed {
		all := m.events()
		*m = newMissed()
		m.lost = all
	}
	if m.lost > 0 {
		m.lost++
		return
	}
	e := m.byPod[ev.PodUID]
	if e == nil {
		m.byPod[ev.PodUID] = m.order.PushBack(&miss{last: *ev, count: 1})
		return
	}
	was := e.Value.(*miss)
	was.last = *ev
	was.count++
	m.order.MoveToBack(e)
}

// repairAll removes all entries and returns a PodSync for each, in order.
func (m *missed) repairAll() []pleg.Event {
	repairs := make([]pleg.Event, 0, m.order.Len())
	for e := m.order.Front(); e != nil; e = e.Next() {
		repairs = append(repairs, e.Value.(*miss).podSync())
	}
	*m = newMissed()
	return repairs
}

func (m *miss) podSync() pleg.Event {
	return pleg.Event{
		Seq: m.last.Seq, Type: pleg.PodSync,
		PodUID: m.last.PodUID, PodName: m.last.PodName, PodNamespace: m.last.PodNamespace,
		Missed: m.count, Epoch: m.last.Epoch, ObservedAt: m.last.ObservedAt,
	}
}
