package promises

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// moment is how much older than its predecessor an event may be by the wall clock while that clock
// is slewed.
const moment = time.Microsecond

// ordered: the observations of a pod never get older (unless the clocks of nodes are set), and each
// event equals the published one with its number.
func (p part) ordered() error {
	observed := make(map[pleg.PodUID]pleg.Event)
	slack := time.Duration(0)
	if p.Wall {
		slack = moment
	}
	for _, ev := range p.events {
		if before := observed[ev.PodUID]; ev.PodUID != "" && ev.ObservedAt.Add(slack).Before(before.ObservedAt) && !p.Merged {
			return fmt.Errorf("%s comes after %s", describe(ev), describe(before))
		}
		observed[ev.PodUID] = ev
	}
	published := make(map[uint64]pleg.Event)
	for _, ev := range p.published() {
		if ev.PodUID != "" {
			published[ev.Seq] = ev
		}
	}
	next := p.nextEpoch()
	for _, ev := range p.events {
		want, known := published[ev.Seq]
		if epoch := next[ev.PodUID]; epoch != "" && p.Published != nil {
			want, known = p.publishedIn(epoch, ev.Seq)
		}
		want.Replayed = ev.Replayed
		if ev.Replayed && !Equal(ev, want) {
			want = p.correctedTo(ev, want)
		}
		if ev.PodUID != "" && len(published) > 0 && (!known || !Equal(ev, want)) {
			return fmt.Errorf("got %+v, published was %+v", ev, want)
		}
	}
	return nil
}

// unique: a mark carries the number of the event before it. The numbers of a merged replay and
// its mark are in no order, but each container comes once.
func (p part) unique() error {
	var last pleg.Event
	if p.first {
		last = p.known.last
	}
	replayed := make(map[container]uint64)
	epoch, next := p.epoch(), p.nextEpoch()
	for _, ev := range p.events {
		if want := cmp.Or(next[ev.PodUID], epoch); ev.Epoch != want && (!p.Merged || ev.PodUID != "") {
			return fmt.Errorf("%s has the epoch %q, not %q", describe(ev), ev.Epoch, want)
		}
		of := container{ev.PodUID, ev.ContainerID}
		if number, twice := replayed[of]; twice && EventSteps[ev.Type] != NoStep && (ev.Replayed && !p.found(ev) || ev.Seq <= number) {
			return fmt.Errorf("%s, which number %d has replayed", describe(ev), number)
		}
		if ev.Replayed {
			replayed[of] = ev.Seq
		}
		if p.Merged && (ev.Replayed || ev.PodUID == "") {
			continue
		}
		if ev.Seq < last.Seq || ev.Seq == last.Seq && ev.PodUID != "" {
			return fmt.Errorf("%s comes after %s", describe(ev), describe(last))
		}
		last = ev
	}
	return nil
}

// synced: a subscriber that asks for a replay or resumes gets one Synced, and another after each
// lost connection. Before it comes the state at the time of the subscription.
func (p part) synced() error {
	marks := 0
	for i, ev := range p.events {
		switch {
		case ev.Type == pleg.Synced:
			marks++
			if err := p.hasAtLeast(lastOfEach(p.events[:i], p.wants)); err != nil {
				return err
			}
		case ev.Replayed && !p.Merged && (marks > 0 || !p.replay && p.After.Epoch == "") && !p.found(ev):
			return fmt.Errorf("%s is replayed after Synced", describe(ev))
		}
	}
	asked := 0
	if p.replay || p.After.Epoch != "" {
		asked = 1
	}
	if p.latest && !p.Unread && marks < asked || marks > asked+len(p.Breaks) {
		return fmt.Errorf("Synced came %d times, want it %d times, and after %d lost connections", marks, asked, len(p.Breaks))
	}
	return nil
}

func (p part) hasAtLeast(known map[container]pleg.Event) error {
	for uid, pod := range p.AtLeast {
		for id := range pod.Containers {
			if _, ok := known[container{uid, id}]; !ok {
				return fmt.Errorf("container %s of pod %s is missing", id, uid)
			}
		}
	}
	return nil
}

// Replaying reports whether Synced has not come since the stream began or was interrupted
// by a Gap.
func (s *Stream) Replaying() bool {
	parts := s.parts()
	p := parts[len(parts)-1]
	return p.replay && !slices.ContainsFunc(p.events, func(ev pleg.Event) bool { return ev.Type == pleg.Synced })
}

// bookmarks: they never get older, and events after a bookmark are newer.
func (p part) bookmarks() error {
	var mark time.Time
	for _, ev := range p.events {
		switch {
		case ev.Type == pleg.Bookmark && ev.ObservedAt.Before(mark):
			return fmt.Errorf("the bookmark of %v comes after the bookmark of %v", ev.ObservedAt, mark)
		case ev.Type == pleg.Bookmark:
			mark = ev.ObservedAt
		case ev.PodUID != "" && !ev.ObservedAt.After(mark) && (!p.Still || !ev.ObservedAt.Equal(mark)):
			return fmt.Errorf("%s comes after the bookmark of %v", describe(ev), mark)
		}
	}
	return nil
}

// filtered: marks always come.
func (p part) filtered() error {
	for _, ev := range p.events {
		if ev.PodUID != "" && !p.wants(ev) {
			return errors.New(describe(ev))
		}
	}
	return nil
}
