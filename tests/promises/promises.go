// Package promises checks the events of a subscriber against docs/subscriptions.md. Each promise is
// an error and one function. The functions read the stream of any subscriber: in the process, at
// the other end of the gRPC service, or of one node of a fleet. The more a test knows of the truth,
// the more they check.
//
// A [Stream] records the events. [History] contains the steps of the containers, [Truth] their
// present state, and [State] the state that a subscriber rebuilds from its events.
package promises

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The errors of the promises.
var (
	ErrOrdered   = errors.New("events of a pod come in another order than they were published")
	ErrUnique    = errors.New("a number comes twice or goes back, or has another epoch")
	ErrComplete  = errors.New("an event is neither delivered nor counted as missed")
	ErrReplay    = errors.New("the replay is not the state of each container")
	ErrSynced    = errors.New("Synced does not come once, between what is replayed and what is live")
	ErrBookmarks = errors.New("an event is not newer than the bookmark before it")
	ErrFilters   = errors.New("an event comes that the filter drops")
	ErrResume    = errors.New("what follows a position is not what was published after it")
	ErrGap       = errors.New("a position of another epoch is resumed, or a Gap comes without one")
	ErrEnd       = errors.New("the end hides events that were not delivered")
	ErrState     = errors.New("the state that a subscriber rebuilds differs from the truth")
	ErrCache     = errors.New("the cache is older than an event that was received")
	ErrLife      = errors.New("a container starts, dies or is removed twice, or in another order")
	ErrTruth     = errors.New("the cache differs from the runtime after the fault has ended")
)

// Promise is one of the promises. It may apply to some streams only.
type Promise struct {
	Name   string
	Broken error
	About  func(*Stream) bool
	kept   func(*Stream) error
}

// Check returns an error that wraps Broken if a stream does not keep the promise.
func (p Promise) Check(s *Stream) error {
	if !p.About(s) {
		return nil
	}
	if err := p.kept(s); err != nil {
		return fmt.Errorf("%s: %w: %w", p.Name, p.Broken, err)
	}
	return nil
}

// All are the promises of docs/subscriptions.md, and Life and Truth of docs/reliability.md.
var All = []Promise{
	{"Ordered", ErrOrdered, everybody, each(part.ordered)},
	{"Unique", ErrUnique, everybody, each(part.unique)},
	{"Complete", ErrComplete, everybody, each(part.complete)},
	{"Replay", ErrReplay, func(s *Stream) bool { return s.Published != nil && (s.Replay || s.After.Epoch != "") && !s.Merged }, each(part.replayed)},
	{"Synced", ErrSynced, everybody, each(part.synced)},
	{"Bookmarks", ErrBookmarks, func(s *Stream) bool { return s.Bookmarks }, each(part.bookmarks)},
	{"Filters", ErrFilters, func(s *Stream) bool { return len(s.Types) > 0 || s.Wants != nil || !s.Network }, each(part.filtered)},
	{"Resume", ErrResume, (*Stream).resumes, (*Stream).resumed},
	{"Gap", ErrGap, func(s *Stream) bool { return s.Epoch != "" }, (*Stream).gaps},
	{"End", ErrEnd, everybody, (*Stream).ended},
	{"State", ErrState, func(s *Stream) bool { return s.Truth != nil && s.rebuilds() }, (*Stream).state},
	{"Cache", ErrCache, func(s *Stream) bool { return s.Cache != nil }, (*Stream).cacheFirst},
	{"Life", ErrLife, everybody, each(part.life)},
	{"Truth", ErrTruth, func(s *Stream) bool { return s.Truth != nil && s.Cached != nil }, (*Stream).truth},
}

func everybody(*Stream) bool { return true }

// Stream contains the request and the events of one subscriber, and the known truth.
type Stream struct {
	// The request of the subscriber. Wants is the part of its filter that concerns containers; nil
	// wants all.
	Replay, Bookmarks, Network bool
	After                      pleg.Position
	Types                      []pleg.EventType
	Wants                      func(Pod, Container) bool

	// Cache, if it is not nil, is compared with each event as it comes. A subscriber that is Late
	// may read events of a pod that has gone since and is there again.
	Cache Cache
	Late  bool
	// State is rebuilt as events come.
	State State
	// Events are the events that came. Breaks are their numbers when the connection was lost: a
	// resumed stream then repeats Synced.
	Events []pleg.Event
	Breaks []int

	// Epoch is the only epoch of the stream; empty if there may be several. Kept is how many events
	// its log keeps; 0 for all. Published returns every event that was published in an epoch and
	// has had the time to come.
	Epoch     string
	Kept      uint64
	Published func(epoch string) []pleg.Event
	// AtLeast are containers that existed before the subscription and still do.
	AtLeast Truth
	// History contains the steps of the containers, Truth their present state, Cached the content
	// of the cache.
	History *History
	Truth   Truth
	Cached  []cache.Entry

	// Wall: the events carry wall times, as over a socket. The pipeline orders observations
	// by the monotonic clock, so while the wall clock is slewed, two CRI events of the same
	// moment may swap.
	Wall bool
	// Still: the clock stands still while nothing waits, so that two answers may have the same time.
	Still bool
	// Merged: the replay is read pod by pod, while events come, as from a fleet.
	Merged bool
	// Unread: the subscriber had not read everything when the pipeline ended.
	Unread bool
	// NoSync: no pod was reinspected without a change, so that no PodSync comes.
	NoSync bool
	// All: the history contains every step, also steps between two lists.
	All bool
	// Repeats: a container may start or die twice in a row, because its state was not
	// known meanwhile.
	Repeats bool
	// Lies: the runtime reported containers as removed that were not, and containers
	// that never existed.
	Lies bool

	early []pleg.Event
	known known
}

// known is a stream's knowledge of the events that [Stream.Forget] has dropped.
type known struct {
	lives map[container]life
	last  pleg.Event // with the highest number
}

// Add records an event as it comes.
func (s *Stream) Add(ev pleg.Event) {
	s.State.Wants = s.Wants
	s.State.Add(ev)
	told := ev.Status
	ev.Status = nil // each delivery carries its own
	s.Events = append(s.Events, ev)
	if s.Cache == nil || ev.PodUID == "" {
		return
	}
	inspected := func(st *pleg.PodStatus) bool { return st != nil && !st.ObservedAt.IsZero() }
	older := func(st *pleg.PodStatus) bool { return inspected(st) && st.ObservedAt.Before(ev.ObservedAt) }
	status, _ := s.Cache.Get(ev.PodUID)
	if older(told) || older(status) || (inspected(status) || !s.Late) && !Fresh(s.Cache, ev.PodUID, ev.ObservedAt.Add(-1)) {
		s.early = append(s.early, ev)
	}
}

// Cache is the cache in which a subscriber looks for the status behind an event.
type Cache interface {
	Get(uid pleg.PodUID) (*pleg.PodStatus, error)
	GetNewerThan(ctx context.Context, uid pleg.PodUID, t time.Time) (*pleg.PodStatus, error)
}

// Fresh reports whether a cache contains an observation of the pod newer than t.
func Fresh(c Cache, uid pleg.PodUID, t time.Time) bool {
	stale := errors.New("stale")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(stale)
	_, err := c.GetNewerThan(ctx, uid, t)
	return !errors.Is(err, stale)
}

// Check returns the errors of the promises that the stream breaks.
func (s *Stream) Check() error {
	var broken []error
	for _, p := range All {
		broken = append(broken, p.Check(s))
	}
	return errors.Join(broken...)
}

// Forget drops the events, for a stream that does not end. Call it after a Check that found that
// the subscriber got everything: from then on the subscriber knows the truth.
func (s *Stream) Forget() {
	parts := s.parts()
	if last := parts[len(parts)-1].last(); last.Seq > 0 {
		s.known.last = last
	}
	s.known.lives = make(map[container]life)
	for uid, pod := range s.Truth {
		for id, c := range pod.Containers {
			if s.Wants == nil || s.Wants(pod, c) {
				s.known.lives[container{uid, id}] = life{step: StateSteps[c.State]}
			}
		}
	}
	s.Events, s.Breaks, s.Replay, s.After = nil, nil, false, pleg.Position{}
}

// Equal compares events that a protocol may have changed in form.
func Equal(a, b pleg.Event) bool {
	sameExit := (a.ExitCode == nil) == (b.ExitCode == nil) && (a.ExitCode == nil || *a.ExitCode == *b.ExitCode)
	sameTimes := a.ObservedAt.Equal(b.ObservedAt) && a.StartedAt.Equal(b.StartedAt) && a.FinishedAt.Equal(b.FinishedAt)
	for _, ev := range []*pleg.Event{&a, &b} {
		ev.ExitCode, ev.ObservedAt, ev.StartedAt, ev.FinishedAt = nil, time.Time{}, time.Time{}, time.Time{}
	}
	return a == b && sameExit && sameTimes
}
