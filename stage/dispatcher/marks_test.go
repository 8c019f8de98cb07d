package dispatcher_test

import (
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// What was sent before a mark is published before it, and a caller that waits for a list
// is told after that.
func TestMarkFollowsTheOutcomesBeforeIt(t *testing.T) {
	for range 20 { // a select takes either channel
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			f.in = make(chan stage.Outcome, 3)
			s := f.subscribe(t, pleg.SubscribeOptions{Bookmarks: true})
			relisted := make(chan error, 1)
			for range 3 {
				f.in <- outcome("a", "Started(c)")
			}
			go func() { f.marks <- stage.Mark{Current: at(4), Relisted: []chan<- error{relisted}} }()
			synctest.Wait()
			f.start(t)
			if err := <-relisted; err != nil {
				t.Errorf("the caller got %v", err)
			}
			for range 3 {
				if ev := <-s.Events(); ev.Type == pleg.Bookmark {
					t.Fatal("the mark came before the events")
				}
			}
			if ev := <-s.Events(); ev.Type != pleg.Bookmark || !ev.ObservedAt.Equal(at(4)) {
				t.Errorf("event %+v, want the mark", ev)
			}
		})
	}
}

// Synced comes behind what was missed before the subscriber read, also if that is newer.
func TestOwedSyncedFollowsTheRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.subscribe(t, pleg.SubscribeOptions{Replay: true, Buffer: 1})
		f.start(t)
		f.publish("a", "Started(1)")
		f.publish("b", "Started(1)")
		f.marks <- stage.Mark{Current: at(1)}
		f.publish("c", "Started(1)")
		got := read(t, s)
		if words := wordsOf(got); words != "a:Started(1) b:PodSync*1 c:PodSync*1 :Synced()" {
			t.Errorf("got %q", words)
		}
	})
}

// A subscriber gets the marks that are sent after Subscribe has returned.
func TestNewSubscriberGetsTheNextMark(t *testing.T) {
	for range 20 { // a select takes either channel
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			s := f.subscribe(t, pleg.SubscribeOptions{Bookmarks: true})
			go func() { f.marks <- stage.Mark{Current: at(1)} }()
			synctest.Wait()
			f.start(t)
			if got := read(t, s); len(got) != 1 || got[0].Type != pleg.Bookmark {
				t.Errorf("got %v, want a bookmark", got)
			}
		})
	}
}

// At the end, the mark also stands for events that wait for the labels of their pod.
func TestEndCountsWhatWaitsForLabels(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		s := f.subscribe(t, pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "app=web"}})
		f.publishLabelled("a", "Started(1)", nil)
		f.publishLabelled("a", "Started(2)", nil)
		f.stop()
		got := read(t, s)
		if len(got) != 1 || got[0].Type != pleg.Gap || got[0].Reason != pleg.Stopped || got[0].Missed != 2 {
			t.Errorf("got %+v, want a Gap for two events", got)
		}
	})
}
