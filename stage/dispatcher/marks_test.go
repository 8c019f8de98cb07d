package dispatcher_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// What was sent before a mark is published before it, and a caller that waits for a list goes on
// after that.
func TestMarkFollowsTheOutcomesBeforeIt(t *testing.T) {
	for range 20 { // a select takes either channel
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, history, discard)
			f.in = make(chan stage.Outcome, 3)
			s := f.subscribe(t, pleg.SubscribeOptions{Bookmarks: true})
			relisted := make(chan error, 1)
			for range 3 {
				f.in <- outcome("a", "PodSync")
			}
			go func() { f.marks <- stage.Mark{Current: at(4), Relisted: []chan<- error{relisted}} }()
			synctest.Wait()
			f.start(t)
			if err := <-relisted; err != nil {
				t.Errorf("the caller got %v", err)
			}
			if lag := s.Lag(); lag.Events != 3 {
				t.Errorf("%d events are published, want 3", lag.Events)
			}
			got, _ := read(t, s)
			if words := wordsOf(got); words != "=a:PodSync a:PodSync a:PodSync :Bookmark()" || !got[3].ObservedAt.Equal(at(4)) {
				t.Errorf("got %q of %v", words, got)
			}
		})
	}
}

// A subscriber gets the newest mark once it has every event of before, and each once: also if
// the mark came before the subscriber.
func TestBookmarks(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		s := f.subscribe(t, pleg.SubscribeOptions{Bookmarks: true})
		without := f.subscribe(t, pleg.SubscribeOptions{})
		f.mark(stage.Mark{Current: at(1)})
		requireRead(t, s, ":Bookmark()")
		f.mark(stage.Mark{}) // for callers only
		requireRead(t, s, "")
		f.publish("a", "Started(c)")
		f.mark(stage.Mark{Current: at(2)})
		f.publish("a", "Died(c)")
		requireRead(t, s, "a:Started(c) :Bookmark() a:Died(c)")
		f.publish("a", "Removed(c)")
		f.mark(stage.Mark{Current: at(3)})
		f.publish("b", "Started(c)")
		f.mark(stage.Mark{Current: at(4)})
		got, _ := read(t, s)
		if words := wordsOf(got); words != "a:Removed(c) b:Started(c) :Bookmark()" || got[2].Seq != 4 || !got[2].ObservedAt.Equal(at(4)) {
			t.Errorf("got %q of %v", words, got)
		}
		requireRead(t, without, "a:Started(c) a:Died(c) a:Removed(c) b:Started(c)")
		requireRead(t, f.subscribe(t, pleg.SubscribeOptions{Bookmarks: true}), ":Bookmark()")
		requireRead(t, f.subscribe(t, pleg.SubscribeOptions{Bookmarks: true, Replay: true}), "=b:Started(c) :Synced() :Bookmark()")
	})
}

// A bookmark keeps the time of the last list that is settled for the pods that its subscriber
// wants.
func TestBookmarkOfAPodThatIsBehind(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		hung := plegtest.Pod("hung", "")
		hung.Namespace, hung.Labels = "web", map[string]string{"app": "web"}
		want := map[pleg.Subscription]time.Time{}
		for filter, current := range map[*pleg.Filter]time.Time{
			{}:                                  at(2),
			{Namespaces: []string{"web"}}:       at(2),
			{Selector: "app=web"}:               at(2),
			{PodUIDs: []pleg.PodUID{"hung"}}:    at(2),
			{Namespaces: []string{"shop"}}:      at(5),
			{Selector: "app!=web"}:              at(5),
			{PodUIDs: []pleg.PodUID{"another"}}: at(5),
		} {
			want[f.subscribe(t, pleg.SubscribeOptions{Bookmarks: true, Filter: *filter})] = current
		}
		f.mark(stage.Mark{Current: at(5), Behind: []stage.Behind{{Pod: hung, Until: at(2)}}})
		for s, current := range want {
			got, _ := read(t, s)
			if len(got) != 1 || got[0].Type != pleg.Bookmark || !got[0].ObservedAt.Equal(current) {
				t.Errorf("got %v, want a bookmark of %v", got, current)
			}
		}
	})
}

// Synced waits for the first mark, and comes behind everything that was published before it.
func TestSyncedWaitsForTheInitialState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, history, discard)
		s := f.subscribe(t, pleg.SubscribeOptions{Replay: true})
		live := f.subscribe(t, pleg.SubscribeOptions{})
		f.start(t)
		f.publish("a", "Started(1)")
		requireRead(t, s, "=a:Started(1)")
		f.publish("b", "Started(1)")
		f.mark(stage.Mark{})
		requireRead(t, s, "=b:Started(1)")
		f.publish("c", "Started(1)")
		f.mark(stage.Mark{Current: at(1)})
		f.publish("d", "Started(1)")
		requireRead(t, s, "=c:Started(1) :Synced() d:Started(1)")
		requireRead(t, live, "=a:Started(1) =b:Started(1) =c:Started(1) d:Started(1)")
	})
}
