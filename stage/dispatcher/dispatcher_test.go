package dispatcher_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestEverySubscriberGetsEveryEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		early := f.subscribe(t, pleg.SubscribeOptions{})
		f.run(t)
		late := f.subscribe(t, pleg.SubscribeOptions{})
		f.publish("a", "Started(c) Changed(d) Started(/s)")
		later := f.subscribe(t, pleg.SubscribeOptions{})
		f.publish("b", "Changed(c)")
		f.publish("a", "Died(c) PodSync")
		const first, second = "a:Started(c) a:Started(/s)", "a:Died(c) a:PodSync"
		requireRead(t, later, second)
		requireRead(t, early, first+" "+second)
		got := read(t, late)
		if wordsOf(got) != first+" "+second {
			t.Errorf("got %q", wordsOf(got))
		}
		// ContainerChanged has no sequence number.
		for n, ev := range got {
			if ev.Seq != uint64(n+1) {
				t.Errorf("event %d has number %d", n, ev.Seq)
			}
		}
	})
}

// If an event arrives after the subscriber has read and before the feeder goes on,
// the buffer has room, but the PodSyncs come first. Until then there is no bookmark.
func TestNoEventOvertakesAPodSync(t *testing.T) {
	for range 50 {
		testDispatcher(t, func(t *testing.T, f *fixture) {
			synctest.Wait() // the first mark is for nobody
			s := f.subscribe(t, pleg.SubscribeOptions{Buffer: 2, Bookmarks: true})
			f.publish("a", "Started(c) Died(c)")
			for _, uid := range []pleg.PodUID{"b", "c", "d", "e"} {
				f.publish(uid, "Started(c)")
			}
			<-s.Events()
			<-s.Events()
			f.marks <- stage.Mark{Current: at(2)}
			f.publish("f", "Started(c)")
			got := []pleg.Event{<-s.Events(), <-s.Events()}
			f.publish("g", "Started(c)")
			got = append(got, read(t, s)...)
			// If d and e are in the buffer already, there is no room for both f and g.
			const want = "b:PodSync*1 c:PodSync*1 d:PodSync*1 e:PodSync*1 f:Started(c) g:"
			if words := wordsOf(got); words != want+"Started(c)" && words != want+"PodSync*1" {
				t.Errorf("got %q, want %q and an event or a PodSync", words, want)
			}
		})
	}
}

func TestCloseBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.subscribe(t, pleg.SubscribeOptions{})
		s.Close()
		f.run(t)
		requireClosed(t, s)
	})
}

// Subscribers come and leave while the dispatcher is busy with others that do.
func TestCloseAtOnce(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		for n := range 100 {
			f.publish(pleg.PodUID(fmt.Sprint(n)), "Started(c)")
		}
		left := make([][]*dispatcher.Subscription, 8)
		var leaving sync.WaitGroup
		for n := range left {
			leaving.Go(func() {
				for range 500 {
					s := f.subscribe(t, pleg.SubscribeOptions{Replay: true})
					s.Close()
					left[n] = append(left[n], s)
				}
			})
		}
		leaving.Wait()
		synctest.Wait()
		for _, s := range slices.Concat(left...) {
			requireClosed(t, s)
		}
	})
}

func TestSubscribeNamesTheBadOption(t *testing.T) {
	f := newFixture(t)
	for field, o := range map[string]pleg.SubscribeOptions{
		"Buffer":    {Buffer: -1},
		"Name":      {Name: "bad\xff"}, // not valid in a metric label
		"printable": {Name: "red\x1b[31m"},
		"After":     {After: pleg.Position{Seq: 475}}, // it may be of another pipeline
		"exclude":   {After: pleg.Position{Epoch: f.Epoch()}, Since: at(1)},
		"Types":     {Filter: pleg.Filter{Types: []pleg.EventType{"ContainerBorn"}}},
		"selector":  {Filter: pleg.Filter{Selector: "a in"}},
	} {
		if _, err := f.Subscribe(o); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Subscribe(%+v) = %v, want an error that names %s", o, err, field)
		}
	}
}

func TestReplayIsThePresentState(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		for _, step := range []struct{ publish, replay string }{
			{"Started(c)", "a:Started(c) :Synced()"},
			{"Died(c) Started(d)", "a:Died(c) a:Started(d) :Synced()"},
			{"Removed(c)", "a:Started(d) :Synced()"},
		} {
			f.publish("a", step.publish)
			for range 2 {
				s := f.subscribe(t, pleg.SubscribeOptions{Replay: true})
				synctest.Wait()
				if got := wordsOf(kit.Drain(s.Events())); got != step.replay {
					t.Errorf("after %s: got %q, want %q", step.publish, got, step.replay)
				}
			}
		}
	})
}
