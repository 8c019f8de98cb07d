package contract_test

import (
	"errors"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each promise that holds whatever fails has its own error: those of
// docs/subscriptions.md, and the last two of docs/reliability.md.
var (
	errBrokeOrdered   = errors.New("events of a pod come in another order than they were published")
	errBrokeUnique    = errors.New("a number comes twice or goes back, or has another epoch")
	errBrokeComplete  = errors.New("an event is neither delivered nor counted as missed")
	errBrokeSynced    = errors.New("Synced does not come once, between what is replayed and what is live")
	errBrokeBookmarks = errors.New("an event is not newer than the bookmark before it")
	errBrokeFilters   = errors.New("an event comes that the filter drops")
	errBrokeResume    = errors.New("what follows a position is not what was published after it")
	errBrokeGap       = errors.New("a position of another epoch is resumed, or a Gap comes without one")
	errBrokeEnd       = errors.New("the end hides events that were not delivered")
	errBrokeState     = errors.New("the state that a subscriber rebuilds differs from the cache")
	errBrokeCache     = errors.New("the cache is older than an event that was received")
	errBrokeLife      = errors.New("a container starts, dies or is removed twice, or in another order")
	errBrokeTruth     = errors.New("the cache differs from the runtime after the fault has ended")
)

// seen is what one subscriber got, and everything that was published.
type seen struct {
	events, published []pleg.Event
	epoch             string
	options           pipeline.SubscribeOptions
	// early are the events that came before the cache was as new.
	early []pleg.Event
	// state is how the state that it rebuilt differs from the cache.
	state []string
	// unread is true if it had not read everything when the pipeline ended.
	unread bool
	// truth is how the cache differed from the runtime in the end.
	truth []string
}

// promises are in the order of the report. A promise is checked for the subscribers
// for which it says something.
var promises = []struct {
	name  string
	err   error
	about func(seen) bool
	kept  func(seen) bool
}{
	{"Ordered", errBrokeOrdered, everybody, seen.ordered},
	{"Unique", errBrokeUnique, everybody, seen.unique},
	{"Complete", errBrokeComplete, everybody, seen.complete},
	{"Synced", errBrokeSynced, everybody, seen.synced},
	{"Bookmarks", errBrokeBookmarks, func(s seen) bool { return s.options.Bookmarks }, seen.bookmarks},
	{"Filters", errBrokeFilters, func(s seen) bool { return len(s.options.Types) > 0 }, seen.filtered},
	{"Resume", errBrokeResume, func(s seen) bool { return s.options.After.Epoch == s.epoch }, seen.resumed},
	{"Gap", errBrokeGap, everybody, seen.gaps},
	{"End", errBrokeEnd, everybody, seen.ended},
	{"State", errBrokeState, func(s seen) bool { return s.rebuilds() && !s.unread }, func(s seen) bool { return len(s.state) == 0 }},
	{"Cache", errBrokeCache, func(s seen) bool { return s.options.After.Epoch != s.epoch }, func(s seen) bool { return len(s.early) == 0 }},
	{"Life", errBrokeLife, everybody, seen.lives},
	{"Truth", errBrokeTruth, everybody, func(s seen) bool { return len(s.truth) == 0 }},
}

func everybody(seen) bool { return true }

// rebuilds reports whether the subscriber has been told the whole state.
func (s seen) rebuilds() bool {
	return len(s.options.Types) == 0 && s.options.After.Epoch != s.epoch
}

// ordered compares each pod's events with those published, of which some may be missing.
func (s seen) ordered() bool {
	published := kit.ByPod(s.published)
	for uid, got := range kit.ByPod(s.events) {
		rest := published[uid]
		for _, ev := range got {
			if ev.PodUID == "" || ev.Missed > 0 || ev.Replayed {
				continue
			}
			for len(rest) > 0 && !kit.EqualEvents(rest[0], ev) {
				rest = rest[1:]
			}
			if len(rest) == 0 {
				return false
			}
		}
	}
	return true
}

func (s seen) unique() bool {
	var last uint64
	for _, ev := range s.events {
		if ev.Type == pleg.Gap && ev.Reason != pleg.Stopped {
			last = 0 // the numbers of the replay that follows are older
			continue
		}
		if ev.Epoch != s.epoch || ev.Seq < last || ev.Seq == last && ev.PodUID != "" {
			return false
		}
		last = ev.Seq
	}
	return true
}

// complete counts the events after Synced, or all if there is none.
func (s seen) complete() bool {
	from, told := uint64(0), 0
	for _, ev := range s.events {
		if ev.Type == pleg.Synced {
			from, told = ev.Seq, 0
		} else {
			told += eventsBehind(ev)
		}
	}
	want := 0
	for _, ev := range s.published {
		if ev.Seq > from && s.wants(ev) {
			want++
		}
	}
	return told == want
}

func (s seen) synced() bool {
	marks := 0
	for _, ev := range s.events {
		if ev.Type == pleg.Synced {
			marks++
		} else if ev.Replayed && marks > 0 {
			return false
		}
	}
	return marks == 1 || marks == 0 && !s.options.Replay && s.options.After == pleg.Position{}
}

func (s seen) bookmarks() bool {
	var at time.Time
	for _, ev := range s.events {
		switch {
		case ev.Type == pleg.Bookmark:
			at = ev.ObservedAt
		case ev.PodUID != "" && !ev.ObservedAt.After(at):
			return false
		}
	}
	return true
}

func (s seen) filtered() bool {
	for _, ev := range s.events {
		if ev.PodUID != "" && ev.Missed == 0 && !s.wants(ev) {
			return false
		}
	}
	return true
}

func (s seen) wants(ev pleg.Event) bool {
	return len(s.options.Types) == 0 || ev.Type == s.options.Types[0]
}

// resumed compares all events with those published after the position.
func (s seen) resumed() bool {
	var want []pleg.Event
	for _, ev := range s.published {
		if ev.Seq > s.options.After.Seq {
			want = append(want, ev)
		}
	}
	got := slices.DeleteFunc(slices.Clone(s.events), func(ev pleg.Event) bool { return ev.Type == pleg.Synced })
	return slices.EqualFunc(got, want, kit.EqualEvents)
}

// gaps accepts one Gap, the first event of whoever resumes in another epoch.
func (s seen) gaps() bool {
	other := s.options.After.Epoch != "" && s.options.After.Epoch != s.epoch
	for i, ev := range s.events {
		if ev.Type == pleg.Gap && ev.Reason != pleg.Stopped && (!other || i > 0) {
			return false
		}
	}
	return !other || len(s.events) > 0 && s.events[0].Type == pleg.Gap
}

// ended accepts one Gap with the reason Stopped, the last event of whoever has missed
// some. That they are all counted is errBrokeComplete.
func (s seen) ended() bool {
	stopped := slices.IndexFunc(s.events, func(ev pleg.Event) bool { return ev.Reason == pleg.Stopped && ev.Type == pleg.Gap })
	if !s.unread {
		return stopped < 0
	}
	return stopped >= 0 && stopped == len(s.events)-1 && s.events[stopped].Missed > 0
}

// lives accepts Started, Died and Removed of a container once each, in this order.
func (s seen) lives() bool {
	type container struct {
		pod pleg.PodUID
		id  pleg.ContainerID
	}
	order := []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved}
	reached := make(map[container]int)
	for _, ev := range s.events {
		step, of := 1+slices.Index(order, ev.Type), container{ev.PodUID, ev.ContainerID}
		if step > 0 && step <= reached[of] {
			return false
		}
		reached[of] = max(reached[of], step)
	}
	return true
}
