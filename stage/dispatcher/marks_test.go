package dispatcher_test

import (
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
)

// What was sent before a mark is published before it, and a caller that waits for a list
// is told after that.
func TestMarkFollowsTheOutcomesBeforeIt(t *testing.T) {
	for range 20 { // a select takes either channel
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			f.in = make(chan stage.Outcome, 3)
			s := f.subscribe(t, dispatcher.SubscribeOptions{Bookmarks: true})
			relisted := make(chan error, 1)
			for n := range 3 {
				f.in <- outcome("a", n+1)
			}
			go func() { f.marks <- stage.Mark{Current: at(4), Relisted: []chan<- error{relisted}} }()
			synctest.Wait()
			go func() { f.ended <- f.Run(f.in, f.marks) }()
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
			f.stop()
		})
	}
}
