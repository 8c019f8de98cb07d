package dispatcher

import (
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// entry is an event in the log, with the labels of its pod at that time. It never changes.
type entry struct {
	event  pleg.Event
	labels map[string]string
	at     time.Duration // the time of its publication, see [Dispatcher.now]
}

// state is the readers' view of the log. It never changes: the loop publishes another state.
type state struct {
	newest uint64 // the number of the last event
	// synced is set once the first list is settled: the events up to this number are the
	// state that the pipeline found.
	synced *uint64
	mark   *bookmark // nil before the first
	// stopped is set by the last state.
	stopped bool
	// changed is closed when another state is published.
	changed chan struct{}
}

// log is the last events. The loop alone writes it. Any number of readers may read it: they find
// out by its number whether an entry has been replaced by a newer entry.
type log struct {
	ring  []atomic.Pointer[entry]
	state atomic.Pointer[state]
}

func newLog(history int) *log {
	l := &log{ring: make([]atomic.Pointer[entry], max(1, history))}
	l.state.Store(&state{changed: make(chan struct{})})
	return l
}

// append adds an event. Readers see it once a state is published.
func (l *log) append(e *entry) { l.slot(e.event.Seq).Store(e) }

// publish replaces the state and wakes whoever waits for a new state.
func (l *log) publish(s state) {
	s.changed = make(chan struct{})
	close(l.state.Swap(&s).changed)
}

// at returns the event with a number; nil if the log no longer contains it.
func (l *log) at(seq uint64) *entry {
	if e := l.slot(seq).Load(); e != nil && e.event.Seq == seq {
		return e
	}
	return nil
}

func (l *log) slot(seq uint64) *atomic.Pointer[entry] { return &l.ring[seq%uint64(len(l.ring))] }

// oldest returns the time at which the oldest of these events that are still in the log was
// published.
func (l *log) oldest(first, last uint64) time.Duration {
	for seq := max(first, l.first(last)); seq <= last; seq++ {
		if e := l.at(seq); e != nil {
			return e.at
		}
	}
	return 0
}

// before returns the number just before the first event that happened at a time or later, among the
// events up to a number. If there is none, it returns that number.
func (l *log) before(since time.Time, until uint64) uint64 {
	for seq := l.first(until); seq <= until; seq++ {
		if e := l.at(seq); e != nil && !happened(&e.event).Before(since) {
			return seq - 1
		}
	}
	return until
}

// first returns the number of the oldest event in the log if the newest is last.
func (l *log) first(last uint64) uint64 { return last + 1 - min(last, uint64(len(l.ring))) }

// happened returns the time of the change that an event describes. A pipeline that starts finds
// changes from long before.
func happened(ev *pleg.Event) time.Time {
	switch {
	case ev.Type == pleg.ContainerStarted && !ev.StartedAt.IsZero():
		return ev.StartedAt
	case ev.Type == pleg.ContainerDied && !ev.FinishedAt.IsZero():
		return ev.FinishedAt
	}
	return ev.ObservedAt
}
