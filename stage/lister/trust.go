package lister

import (
	"sync/atomic"
	"time"
)

const (
	// provenAfter is the age at which an open stream counts as up. A runtime
	// without events accepts the call and ends it at once.
	provenAfter = 500 * time.Millisecond
	// quietTime is how long nothing may be unannounced before a doubted stream is trusted
	// again: one that loses an event every few minutes never is.
	quietTime = 10 * time.Minute
)

// trust answers one question: may CRI events stand in for lists?
//
// Others report facts. The hinter reports that the stream was opened and that it
// ended. The differ reports changes that no event announced, and relists that found none.
// An open stream is up once it has lived for provenAfter. After a change that the stream
// misses, it is doubted until nothing was unannounced for quietTime and an event was
// confirmed: a stream that sends nothing looks like that of an idle node.
//
// The evidence is one immutable value that each report replaces, so that health
// does not wait for a list that hangs.
type trust struct{ evidence atomic.Pointer[evidence] }

// evidence is what is known of the stream.
type evidence struct {
	// opened is when a stream was opened that is not up yet; zero if there is none.
	opened time.Time
	// up is the state of the stream since a time.
	up    bool
	since time.Time
	// proven is true if a list has confirmed a change that an event announced, since the
	// stream was doubted.
	proven bool
	// doubted is when the stream last missed a change; zero if it is trusted.
	doubted time.Time
}

// at returns the evidence as of a time: a stream that has lived long enough is up.
func (t *trust) at(now time.Time) evidence { return t.evidence.Load().at(now) }

func (t *trust) now() evidence { return t.at(time.Now()) }

func (e evidence) at(now time.Time) evidence {
	if proven := e.opened.Add(provenAfter); !e.opened.IsZero() && !now.Before(proven) {
		e.up, e.since, e.opened = true, proven, time.Time{}
	}
	return e
}

// update applies a report and returns the evidence before and after it.
func (t *trust) update(report func(e *evidence, now time.Time)) (before, after evidence) {
	for {
		old := t.evidence.Load()
		now := time.Now()
		before = old.at(now)
		after = before
		report(&after, now)
		if t.evidence.CompareAndSwap(old, &after) {
			return before, after
		}
	}
}

// opened reports that a stream was opened.
func (t *trust) opened() {
	t.update(func(e *evidence, now time.Time) { e.opened = now })
}

// ended reports that the stream is closed.
func (t *trust) ended() {
	t.update(func(e *evidence, now time.Time) {
		e.opened = time.Time{}
		if e.up {
			e.up, e.since = false, now
		}
	})
}

// missed reports a change that a stream failed to announce while it was up. It
// returns whether the stream was trusted until then.
func (t *trust) missed() (trusted bool) {
	before, _ := t.update(func(e *evidence, now time.Time) {
		e.doubted, e.proven = now, false
	})
	return !before.isDoubted()
}

// confirmed reports a relist that found nothing unannounced since the one before, and
// whether it confirmed an event. It returns whether that has ended a doubt.
func (t *trust) confirmed(event bool) (again bool) {
	before, after := t.update(func(e *evidence, now time.Time) {
		e.proven = e.proven || event
		if e.proven && now.Sub(e.doubted) >= quietTime {
			e.doubted = time.Time{}
		}
	})
	return before.isDoubted() && !after.isDoubted()
}

func (e evidence) isDoubted() bool { return !e.doubted.IsZero() }

// standsIn reports whether events stand in for lists.
func (e evidence) standsIn() bool { return e.up && !e.isDoubted() }

// sameStream reports whether the stream has neither come up nor ended in between.
func (e evidence) sameStream(other evidence) bool {
	return e.since.Equal(other.since)
}

// nextProof is when an open stream will be up; zero if none is open.
func (e evidence) nextProof() time.Time {
	if e.opened.IsZero() {
		return time.Time{}
	}
	return e.opened.Add(provenAfter)
}
