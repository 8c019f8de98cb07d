package contract_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// A subscriber that does not keep up gets, before any newer event, one PodSync for
// each pod with missed events, with their number. Others get every event.
func TestContractGap(t *testing.T) {
	// The events of one list fit into the buffer; those of all do not fit into the
	// buffers of the socket either.
	const pods, rounds, buffer = 100, 20, 400
	eachWay(t, pipeline.Options{Inspectors: pods}, func(f *fixture) {
		quick := f.subscribe(pipeline.SubscribeOptions{})
		slow := f.subscribe(pipeline.SubscribeOptions{Buffer: buffer})
		slow.Pause()
		for round := range rounds {
			f.fill(pods, fmt.Sprintf("c%d=running", round))
			kit.Relist(1)
		}
		published := len(quick.Events())
		if want := pods * (1 + 3*(rounds-1)); published != want {
			f.Fatalf("the quick subscriber got %d events, want %d", published, want)
		}
		slow.Resume()
		kit.Relist(1)
		f.require("slow", slow, quick)
		f.require("quick", quick, quick)
		if s := slow.stream.State; s.Repairs > pods || s.Missed < uint64(published/2) {
			f.Errorf("%d of %d events were missed and %d pods repaired, want more than half and at most %d", s.Missed, published, s.Repairs, pods)
		}
		f.fill(pods, "last=running")
		kit.Relist(1)
		f.require("after the repairs", slow, quick)
		if n := slow.stream.State.Missed; n > 0 && slow.stream.Events[len(slow.stream.Events)-1].Missed > 0 {
			f.Errorf("after the repairs: missed again")
		}
	})
}

func (f *fixture) fill(pods int, words string) {
	for _, uid := range kit.UIDs(pods) {
		f.set(uid, words)
	}
	f.record()
}

// After each list that is settled, subscribers that asked for bookmarks get one. It
// has the time up to which all events are delivered.
func TestContractBookmarks(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		v := f.subscribe(pipeline.SubscribeOptions{Bookmarks: true})
		plain := f.subscribe(pipeline.SubscribeOptions{})
		start := time.Now()
		kit.Relist(3)
		quiet := v.Events()
		if len(quiet) < 2 || slices.ContainsFunc(quiet, func(ev pleg.Event) bool { return ev.Type != pleg.Bookmark || ev.Seq != 0 }) {
			f.Fatalf("three lists without pods: %+v, want bookmarks with number 0", quiet)
		}
		for i, ev := range quiet {
			// The first list after the start is half a second later.
			if want := start.Add(time.Duration(i)*time.Second + 500*time.Millisecond); ev.ObservedAt.After(want) || ev.ObservedAt.Before(want.Add(-time.Second)) {
				f.Errorf("bookmark %d is of %v, want %v or the list before", i, ev.ObservedAt, want)
			}
			if ev.Epoch != f.Epoch() {
				f.Errorf("bookmark %d has the epoch %q, want %q", i, ev.Epoch, f.Epoch())
			}
		}
		f.live(len(podLife))
		f.require("with bookmarks", v, plain)
		if i := slices.IndexFunc(plain.Events(), func(ev pleg.Event) bool { return ev.Type == pleg.Bookmark }); i >= 0 {
			f.Errorf("a subscriber without bookmarks got %+v", plain.Events()[i])
		}
	})
}

// A subscriber that is behind gets no bookmark until it has every event before it. In
// about every second round a bookmark and a repair are due at the same moment.
func TestContractBookmarksNotWhileBehind(t *testing.T) {
	for range 8 {
		inProcess(t, pipeline.Options{}, (*fixture).readBehind)
	}
}

func (f *fixture) readBehind() {
	all := f.subscribe(pipeline.SubscribeOptions{Buffer: 4000})
	var readers sync.WaitGroup
	var behind []subscriber
	for range 50 {
		sub, err := f.Subscribe(pipeline.SubscribeOptions{Buffer: 3, Bookmarks: true})
		if err != nil {
			f.Fatal(err)
		}
		s := subscriber{stream: &promises.Stream{Bookmarks: true, Epoch: f.Epoch()}}
		s.stream.State.Look = f.Cache().Get
		behind = append(behind, s)
		readers.Go(func() { readAtTheLists(sub, s.stream) })
	}
	f.live(2 * len(podLife))
	readers.Wait()
	for i, s := range behind {
		f.require(fmt.Sprint(i), s, all)
		if !slices.ContainsFunc(s.stream.Events, func(ev pleg.Event) bool { return ev.Type == pleg.Bookmark }) {
			f.Errorf("%d: no bookmark after the last repair", i)
		}
	}
}

// readAtTheLists starts to read once it is behind: two events at each list, so that
// the buffer has room, events are due and a bookmark comes at the same moment.
func readAtTheLists(sub *pipeline.Subscription, s *promises.Stream) {
	defer sub.Close()
	time.Sleep(time.Duration(2*len(podLife))*time.Second + 500*time.Millisecond)
	for range livingPods {
		for range 2 {
			select {
			case ev := <-sub.Events():
				s.Add(ev)
			default:
			}
		}
		time.Sleep(time.Second)
	}
}
