package dispatcher_test

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A subscriber gets the same position in the log whether it asks for the state, a position or a
// time.
func TestBeginning(t *testing.T) {
	began := func(ago int) time.Time { return at(0).Add(-time.Duration(ago) * time.Hour) }
	for name, test := range map[string]struct {
		options pleg.SubscribeOptions // an After without an epoch gets that of the dispatcher
		want    string                // before the live event
	}{
		"from now on":                {pleg.SubscribeOptions{}, ""},
		"the state":                  {pleg.SubscribeOptions{Replay: true}, "=a:Died(c) =a:Started(d) =b:Started(c) :Synced()"},
		"the state of some":          {pleg.SubscribeOptions{Replay: true, Filter: pleg.Filter{Selector: "app=b"}}, "=b:Started(c) :Synced()"},
		"after the last":             {pleg.SubscribeOptions{After: pleg.Position{Seq: 6}}, ":Synced()"},
		"after the third":            {pleg.SubscribeOptions{After: pleg.Position{Seq: 3}}, "a:Started(d) x:Removed(c) b:Started(c) :Synced()"},
		"after the third, some":      {pleg.SubscribeOptions{After: pleg.Position{Seq: 3}, Filter: pleg.Filter{PodUIDs: []pleg.PodUID{"b"}}}, "b:Started(c) :Synced()"},
		"after the third, and state": {pleg.SubscribeOptions{After: pleg.Position{Seq: 3}, Replay: true}, "=a:Died(c) a:Started(d) x:Removed(c) b:Started(c) :Synced()"},
		"after one that is to come":  {pleg.SubscribeOptions{After: pleg.Position{Seq: 7}}, "Gap(OtherEpoch)*0 =a:Died(c) =a:Started(d) =b:Started(c) :Synced()"},
		"after one of another epoch": {pleg.SubscribeOptions{After: pleg.Position{Epoch: "other", Seq: 3}}, "Gap(OtherEpoch)*0 =a:Died(c) =a:Started(d) =b:Started(c) :Synced()"},
		"since the beginning":        {pleg.SubscribeOptions{Since: began(9)}, "=a:Started(c) x:Started(c) a:Died(c) a:Started(d) x:Removed(c) b:Started(c) :Synced()"},
		"since an end":               {pleg.SubscribeOptions{Since: began(2)}, "a:Died(c) a:Started(d) x:Removed(c) b:Started(c) :Synced()"},
		"since a later end":          {pleg.SubscribeOptions{Since: began(1)}, "a:Started(d) x:Removed(c) :Synced()"},
		"since an end, and state":    {pleg.SubscribeOptions{Since: began(1), Replay: true}, "=a:Died(c) a:Started(d) x:Removed(c) b:Started(c) :Synced()"},
		"since now":                  {pleg.SubscribeOptions{Since: at(2)}, ":Synced()"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, history, discard)
				f.start(t)
				publish := func(o stage.Outcome, times ...time.Time) {
					for i := range times {
						o.Events[i].StartedAt, o.Events[i].FinishedAt = times[i], times[i]
					}
					if o.Pod != nil {
						o.Pod.Labels = map[string]string{"app": string(o.UID)}
					}
					f.in <- o
				}
				found := outcome("a", "Started(c) Changed(d) Other(e)") // an event that only causes an inspection takes no number
				found.Events[0].Replayed = true
				publish(found, began(3))
				f.mark(stage.Mark{Current: at(1)})
				publish(outcome("x", "Started(c)"), began(3))
				publish(outcome("a", "Died(c) Started(d)"), began(2), time.Time{})
				gone := outcome("x", "Removed(c)")
				gone.Pod = nil
				publish(gone)
				publish(outcome("b", "Started(c)"), began(2))
				synctest.Wait()
				o := test.options
				if o.After.Seq > 0 && o.After.Epoch == "" {
					o.After.Epoch = f.Epoch()
				}
				first, second := f.subscribe(t, o), f.subscribe(t, o)
				synctest.Wait()
				if lag := first.Lag().Events; o.After.Epoch == f.Epoch() && o.After.Seq <= 6 && lag != 6-o.After.Seq {
					t.Errorf("before it reads, the lag is %d events, want %d", lag, 6-o.After.Seq)
				}
				if first.Name() == second.Name() {
					t.Errorf("two subscribers without a name are both %s", first.Name())
				}
				f.publishLabelled("b", "Died(c)", map[string]string{"app": "b"})
				want := strings.TrimSpace(test.want + " b:Died(c)")
				requireRead(t, first, want)
				requireRead(t, second, want)
			})
		})
	}
}

// A subscriber whose position is within the log misses nothing. A subscriber whose position is
// before the log gets a Gap.
func TestPlaceInTheLog(t *testing.T) {
	const length = 8
	for behind := range 2 * length {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, length, discard)
			f.run(t)
			f.publish("a", "Started(c)")
			s := f.subscribe(t, pleg.SubscribeOptions{})
			for range behind {
				f.publish("a", "PodSync")
			}
			if lag := s.Lag(); lag.Events != uint64(behind) {
				t.Errorf("the lag is %d events, want %d", lag.Events, behind)
			}
			want := strings.TrimSpace(strings.Repeat(" a:PodSync", behind))
			if behind > length {
				want = fmt.Sprintf("Gap(HistoryTooShort)*%d =a:Started(c) :Synced()", behind)
			}
			requireRead(t, s, want)
			if lag := s.Lag(); lag != (pleg.Lag{}) {
				t.Errorf("the lag is %+v after everything was read", lag)
			}
			if behind > length { // events in the log since a time come without a Gap
				requireRead(t, f.subscribe(t, pleg.SubscribeOptions{Since: at(0)}), strings.Repeat("a:PodSync ", length)+":Synced()")
			}
		})
	}
}

// lives is small here; "make faults" runs more.
var lives = flag.Int("dispatcher.lives", 5000, "how many pods live in TestThreeSpeeds")

// inUse returns the bytes of the heap that are reachable.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Subscribers of different speed, over many lives: the events of each and the numbers in its Gaps
// add up to all events. A subscriber that stays within the log gets no Gap. Memory does not grow
// with unread events.
func TestThreeSpeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond = 100
		lives, before := max(2000, *lives), int64(0)
		f := newFixture(t, 1000, discard)
		f.run(t)
		type reader struct {
			sub       pleg.Subscription
			got, gaps uint64
			missed    uint64
		}
		newReader := func() *reader { return &reader{sub: f.subscribe(t, pleg.SubscribeOptions{})} }
		var wg sync.WaitGroup
		read := func(r *reader, pause time.Duration) {
			wg.Go(func() {
				for ev, err := range r.sub.All(t.Context()) {
					switch {
					case err != nil:
						return
					case ev.Type == pleg.Gap:
						r.gaps++
						r.missed += ev.Missed
					case ev.PodUID != "" && !ev.Replayed:
						r.got++
					}
					time.Sleep(pause)
				}
			})
		}
		quick, steady, slow, never := newReader(), newReader(), newReader(), newReader()
		read(quick, 0)
		read(steady, time.Second/(3*perSecond))
		read(slow, time.Second/10)
		for n := range lives {
			if n == 1000 { // the log is full
				before = inUse()
			}
			uid := pleg.PodUID(fmt.Sprint(n))
			f.in <- outcome(uid, "Started(c)")
			last := outcome(uid, "Died(c) Removed(c)")
			last.Pod = nil
			f.in <- last
			time.Sleep(time.Second / perSecond)
		}
		if grown := inUse() - before; grown > 256<<10 {
			t.Errorf("after %d lives %d KiB more are in use than after 1000", lives, grown>>10)
		}
		f.stop()
		read(never, 0)
		wg.Wait()
		for name, r := range map[string]*reader{"quick": quick, "steady": steady, "slow": slow, "never": never} {
			if r.got+r.missed != 3*uint64(lives) {
				t.Errorf("%s got %d events and missed %d, want %d together", name, r.got, r.missed, 3*lives)
			}
			if behind := name == "slow" || name == "never"; (r.gaps > 0) != behind {
				t.Errorf("%s had %d gaps", name, r.gaps)
			}
		}
	})
}

func TestReplayIsThePresentState(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		late := f.subscribe(t, pleg.SubscribeOptions{})
		f.publish("b", "Created(c)")
		for _, step := range []struct{ publish, replay string }{
			{"Started(c)", "=b:Created(c) =a:Started(c) :Synced()"},
			{"Died(c) Started(d)", "=b:Created(c) =a:Died(c) =a:Started(d) :Synced()"},
			{"Corrected(c) PodSync", "=b:Created(c) =a:Died(c) =a:Started(d) :Synced()"},
			{"Removed(c)", "=b:Created(c) =a:Started(d) :Synced()"},
		} {
			f.publish("a", step.publish)
			for range 2 {
				s := f.subscribe(t, pleg.SubscribeOptions{Replay: true, Filter: pleg.Filter{Types: eventtype.Types(eventtype.ClassNormal, eventtype.ClassOnRequest)}})
				requireRead(t, s, step.replay)
			}
		}
		corrected := outcome("a", "Corrected(d)")
		corrected.Events[0].Image = "of the correction"
		f.in <- corrected
		synctest.Wait()
		f.remove("a", "Died(d) Removed(d)")
		requireRead(t, f.subscribe(t, pleg.SubscribeOptions{Replay: true}), ":Synced()")
		for got, _ := read(t, late); len(got) > 0; got = got[1:] {
			if ev := got[0]; ev.ContainerID == "d" && ev.Image != "" {
				t.Errorf("%+v is in the log, want what was published before the correction", ev)
			}
		}
	})
}

// A pod keeps its labels until its last event, also if a list shows it without them.
func TestLabelsOfTheCommit(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		web, mail := map[string]string{"app": "web"}, map[string]string{"app": "mail"}
		s := f.subscribe(t, pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "app=web"}})
		f.publishLabelled("a", "Started(1)", web)
		f.publishLabelled("b", "Started(2)", mail)
		f.publishLabelled("a", "Started(3)", nil)
		f.publishLabelled("b", "Started(4)", web)
		f.publishLabelled("a", "Died(3)", mail)
		f.remove("b", "Died(4)")
		f.publishLabelled("c", "Started(5)", web)
		f.publishLabelled("c", "Died(5)", map[string]string{}) // it has none now
		f.publishLabelled("d", "Started(6)", mail)
		f.publishLabelled("d", "Changed(6)", web) // no event for subscribers
		requireRead(t, s, "a:Started(1) a:Started(3) b:Started(4) b:Died(4) c:Started(5)")
		requireRead(t, f.subscribe(t, pleg.SubscribeOptions{Replay: true, Filter: pleg.Filter{Selector: "app=web"}}), "=d:Started(6) :Synced()")
	})
}

func TestSubscribeNamesTheBadOption(t *testing.T) {
	f := newFixture(t, history, discard)
	for want, o := range map[string]pleg.SubscribeOptions{
		`Name must be printable UTF-8, got "bad\xff"`:                                          {Name: "bad\xff"}, // not valid in a metric label
		`Name must be printable UTF-8, got "red\x1b[31m"`:                                      {Name: "red\x1b[31m"},
		"After has no epoch, so its number 475 may be of another pipeline: use Event.Position": {After: pleg.Position{Seq: 475}},
		"After and Since exclude each other":                                                   {After: pleg.Position{Epoch: f.Epoch()}, Since: at(1)},
		"Types":                                                                                {Filter: pleg.Filter{Types: []pleg.EventType{"ContainerBorn"}}},
		"selector":                                                                             {Filter: pleg.Filter{Selector: "a in"}},
	} {
		_, err := f.Subscribe(o)
		if !errors.Is(err, pleg.ErrInvalidOption) || !strings.HasPrefix(err.Error(), "subscribe: ") || !strings.Contains(err.Error(), want) || strings.Contains(want, " ") && err.Error() != "subscribe: "+want {
			t.Errorf("Subscribe(%+v) = %v, want an error that says %s", o, err, want)
		}
	}
	for n, name := range []string{"", "own", ""} {
		if got, want := f.subscribe(t, pleg.SubscribeOptions{Name: name}).Name(), []string{"subscriber-1", "own", "subscriber-2"}[n]; got != want {
			t.Errorf("the name is %q, want %q", got, want)
		}
	}
	if !regexp.MustCompile("^[0-9a-f]{16}$").MatchString(f.Epoch()) {
		t.Errorf("the epoch is %q", f.Epoch())
	}
}

// An operator sees in metrics and in the log who does not read.
func TestSubscriberThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged kit.Log
		registry := prometheus.NewPedanticRegistry()
		f := newFixture(t, 4, logged.Logger(), registry)
		f.run(t)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		want := func(value float64, name string, labels ...string) {
			t.Helper()
			kit.RequireMetric(t, registry, value, name, labels...)
		}
		quick, slow, same := f.subscribe(t, pleg.SubscribeOptions{Name: "quick"}), f.subscribe(t, pleg.SubscribeOptions{Name: "slow"}), f.subscribe(t, pleg.SubscribeOptions{Name: "slow"})
		f.publish("a", "Started(c)")
		time.Sleep(10 * time.Second)
		f.publish("a", "Changed(c) Died(c)") // the first is no event for subscribers
		got, _ := read(t, quick)
		if len(got) != 2 || got[0].Epoch != f.Epoch() || got[1].Epoch != f.Epoch() || got[0].Seq != 1 || f.Position() != (pleg.Position{Epoch: got[1].Epoch, Seq: 2}) || got[1].Seq != 2 {
			t.Errorf("events %+v at %v, want the numbers of this epoch", got, f.Position())
		}
		if ev, err := same.Next(t.Context()); err != nil || ev.Seq != 1 {
			t.Errorf("the first event is %+v, %v", ev, err)
		}
		time.Sleep(20*time.Second - time.Millisecond) // read takes one
		synctest.Wait()
		logged.RequireLines(t, 0, "msg") // not longer than 30 s
		if lag, less := slow.Lag(), same.Lag(); lag != (pleg.Lag{Events: 2, Age: 30 * time.Second}) || less != (pleg.Lag{Events: 1, Age: 20 * time.Second}) {
			t.Errorf("the lags are %+v and %+v, want 2 events of 30 s and one of 20 s", lag, less)
		}
		want(3, "pleg_subscribers")
		want(2, "pleg_subscriber_lag_events", "slow") // the slower of the two
		want(30, "pleg_subscriber_lag_seconds", "slow")
		want(0, "pleg_subscriber_lag_events", "quick")
		want(0, "pleg_subscriber_lag_seconds", "quick")
		want(1, "pleg_events_total", string(pleg.ContainerStarted))
		want(1, "pleg_events_total", string(pleg.ContainerDied))
		_, _ = read(t, same)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		logged.RequireLines(t, 1, `level=WARN msg="subscriber is not reading" stage=dispatcher subscriber=slow age=1m0s events=2`)
		logged.RequireLines(t, 1, "msg")
		for range 5 {
			f.publish("b", "PodSync")
		}
		requireRead(t, slow, "Gap(HistoryTooShort)*7 =a:Died(c) :Synced()")
		want(1, "pleg_subscriber_gaps_total", "slow")
		want(7, "pleg_subscriber_missed_events_total", "slow")
		want(7, "pleg_discarded_events_total")
		want(0, "pleg_subscriber_gaps_total", "quick")
		quick.Close()
		synctest.Wait()
		want(2, "pleg_subscribers")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		logged.RequireLines(t, 2, "msg")
		logged.RequireLines(t, 1, " events=5") // the other of this name
	})
}

// A single event that a subscriber does not read is enough. All such subscribers are named.
func TestOneUnreadEventIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged kit.Log
		f := newFixture(t, history, logged.Logger())
		f.run(t)
		f.subscribe(t, pleg.SubscribeOptions{Name: "slow"})
		f.subscribe(t, pleg.SubscribeOptions{Name: "other"})
		time.Sleep(time.Second)
		f.publish("a", "Started(c)")
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, name := range []string{"slow", "other"} {
			logged.RequireLines(t, 1, `msg="subscriber is not reading" stage=dispatcher subscriber=`+name+" age=59s events=1")
		}
	})
}

// Subscribers come and leave while others do the same.
func TestCloseAtOnce(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		for n := range history {
			f.publish(pleg.PodUID(fmt.Sprint(n)), "Started(c)")
		}
		left := make([][]pleg.Subscription, 8)
		var leaving sync.WaitGroup
		for n := range left {
			leaving.Go(func() {
				for range 500 {
					s, err := f.Subscribe(pleg.SubscribeOptions{Replay: true})
					if err != nil {
						t.Error(err)
						return
					}
					s.Close()
					s.Close()
					left[n] = append(left[n], s)
				}
			})
		}
		leaving.Wait()
		synctest.Wait()
		for _, s := range slices.Concat(left...) {
			requireEnd(t, s, pleg.ErrClosed)
			if _, open := <-s.Events(); open {
				t.Error("an event came after Close")
			}
		}
	})
}

func TestCloseBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, history, discard)
		s, stays := f.subscribe(t, pleg.SubscribeOptions{}), f.subscribe(t, pleg.SubscribeOptions{})
		events := s.Events()
		synctest.Wait()
		s.Close()
		if _, open := <-events; open { // although nothing runs
			t.Error("an event came after Close")
		}
		requireEnd(t, s, pleg.ErrClosed)
		f.run(t)
		f.publish("a", "Started(c)")
		requireRead(t, stays, "a:Started(c)")
	})
}

// A subscriber that the log has left behind before the end gets a Gap in place of all that it has not
// read, which is counted.
func TestBehindTheLogAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		f := newFixture(t, 4, discard, kit.Kept{Registerer: registry})
		f.run(t)
		s := f.subscribe(t, pleg.SubscribeOptions{})
		f.publish("a", "PodSync PodSync")
		requireRead(t, s, "a:PodSync a:PodSync")
		f.publish("a", strings.Repeat("PodSync ", 7))
		f.stop()
		synctest.Wait()
		got, err := read(t, s)
		if words := wordsOf(got); words != "Gap(Stopped)*7" || got[0].Seq != 9 || !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("got %q, %+v, %v", words, got, err)
		}
		kit.RequireMetric(t, registry, 7, "pleg_discarded_events_total")
		if lag := s.Lag(); lag != (pleg.Lag{}) {
			t.Errorf("the lag is %+v after the end", lag)
		}
		var ends []error
		for _, err := range s.All(t.Context()) {
			ends = append(ends, err)
		}
		if len(ends) != 1 || !errors.Is(ends[0], pleg.ErrStopped) {
			t.Errorf("a range ended with %v, want %v", ends, pleg.ErrStopped)
		}
	})
}

// A subscriber that comes just before the end, and has no position yet, is told of the end.
func TestSubscribeAtTheEnd(t *testing.T) {
	for range 20 { // a select takes either channel
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, history, discard)
			s := f.subscribe(t, pleg.SubscribeOptions{})
			f.stop()
			f.start(t)
			requireEnd(t, s, pleg.ErrStopped)
		})
	}
}

// The lag counts the events that the reader of the channel did not take; after the end, a Gap in
// the channel does.
func TestEventsAtTheEnd(t *testing.T) {
	for n := range 15 {
		events, taken := n%5, n/5 // of more
		testDispatcher(t, func(t *testing.T, f *fixture) {
			s := f.subscribe(t, pleg.SubscribeOptions{})
			for range taken + events {
				f.publish("a", "PodSync")
			}
			channel := s.Events()
			for range taken {
				<-channel
			}
			synctest.Wait()
			if lag := s.Lag().Events; lag != uint64(events) {
				t.Errorf("the lag is %d events, want %d", lag, events)
			}
			f.stop()
			synctest.Wait()
			var got []pleg.Event
			for ev := range channel {
				got = append(got, ev)
			}
			want := strings.TrimSpace(strings.Repeat("a:PodSync ", min(1, events)))
			if events > 1 { // the channel holds one event
				want = fmt.Sprintf("Gap(Stopped)*%d", events)
			}
			if words := wordsOf(got); words != want || len(got) > 0 && got[0].Seq != uint64(taken+events) {
				t.Errorf("%d events, after %d: got %q, %+v, want %q, and the number of the last", events, taken, words, got, want)
			}
		})
	}
}

// The cost of a publication does not grow with subscribers that do not read, and memory does not
// grow with unread events.
func TestUnreadCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, history, discard)
		f.run(t)
		cost := func() float64 {
			o := outcome("a", "Died(c)")
			return testing.AllocsPerRun(100, func() {
				f.in <- o
				synctest.Wait()
			})
		}
		alone := cost()
		for range 1000 {
			f.subscribe(t, pleg.SubscribeOptions{Replay: true})
		}
		synctest.Wait()
		if with := cost(); with > alone+1 {
			t.Errorf("an event takes %v allocations with 1000 subscribers, %v without", with, alone)
		}
	})
}

var _ pleg.Subscription = (*dispatcher.Subscription)(nil)

// Outcomes from before a mark are published before it, and a caller that waits for a list continues
// after that.
func TestMarkFollowsTheOutcomesBeforeIt(t *testing.T) {
	for range 20 { // a select takes either channel
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, history, discard)
			f.in = make(chan stage.Outcome, 3)
			s := f.subscribe(t, pleg.SubscribeOptions{Bookmarks: true})
			relisted, second := make(chan error), make(chan error, 1) // the caller takes it late
			for range 3 {
				f.in <- outcome("a", "PodSync")
			}
			go func() { f.marks <- stage.Mark{Current: at(4), Relisted: []chan<- error{relisted, second}} }()
			synctest.Wait()
			f.start(t)
			synctest.Wait()
			if lag := s.Lag(); lag.Events != 3 {
				t.Errorf("%d events are published before the caller continues, want 3", lag.Events)
			}
			if err := <-relisted; err != nil {
				t.Errorf("the caller got %v", err)
			}
			if synctest.Wait(); len(second) != 1 {
				t.Error("the second caller still waits")
			}
			if f.synced.Seq != 3 {
				t.Errorf("synced after event %d, want 3", f.synced.Seq)
			}
			got, _ := read(t, s)
			if words := wordsOf(got); words != "a:PodSync a:PodSync a:PodSync :Bookmark()" || !got[3].ObservedAt.Equal(at(4)) {
				t.Errorf("got %q of %v", words, got)
			}
		})
	}
}

// A bookmark has the time of the pods that a subscriber asks for: that of the one that is behind for longest.
func TestBookmarksOfPodsThatAreBehind(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		f.publishLabelled("a", "Started(c)", map[string]string{"app": "a"})
		mail := plegtest.Pod("b", "")
		mail.Labels = map[string]string{"app": "b"}
		mail.Namespace = "mail"
		f.mark(stage.Mark{Current: at(5), Behind: []stage.Behind{{Pod: plegtest.Pod("a", ""), Until: at(2)}, {Pod: mail, Until: at(3)}}})
		for want, filters := range map[int][]pleg.Filter{
			2: {{}, {PodUIDs: []pleg.PodUID{"a"}}, {Selector: "app=a"}, {PodUIDs: []pleg.PodUID{"b", "a"}}, {Namespaces: []string{"ns"}}},
			3: {{PodUIDs: []pleg.PodUID{"b"}}, {Selector: "app=b"}, {Namespaces: []string{"mail"}}},
			5: {{PodUIDs: []pleg.PodUID{"c"}}, {Selector: "app=c"}, {PodUIDs: []pleg.PodUID{"a"}, Selector: "app=b"}},
		} {
			for _, filter := range filters {
				got, err := read(t, f.subscribe(t, pleg.SubscribeOptions{Bookmarks: true, Filter: filter}))
				if len(got) != 1 || got[0].Type != pleg.Bookmark || !got[0].ObservedAt.Equal(at(want)) {
					t.Errorf("%+v: got %+v, %v, want a bookmark of %v", filter, got, err, at(want))
				}
			}
		}
	})
}

// A subscriber gets the newest mark after every earlier event, and each mark once: also if the mark
// came before the subscriber.
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
		late := f.subscribe(t, pleg.SubscribeOptions{Replay: true})
		synctest.Wait()
		f.publish("c", "Started(d)")
		f.mark(stage.Mark{Current: at(5)}) // does not move Synced
		requireRead(t, late, "=b:Started(c) :Synced() c:Started(d)")
	})
}

// A mark for callers only does not say that the first list is published.
func TestMarkForCallersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, history, discard)
		f.start(t)
		s := f.subscribe(t, pleg.SubscribeOptions{Replay: true, Bookmarks: true})
		relisted := make(chan error, 1)
		f.mark(stage.Mark{Relisted: []chan<- error{relisted}})
		if f.synced != (pleg.Position{}) || len(relisted) != 1 {
			t.Errorf("synced at %v, %d callers continue, want none and one", f.synced, len(relisted))
		}
		requireRead(t, s, "")
		f.mark(stage.Mark{Current: at(1)})
		if f.synced != (pleg.Position{Epoch: f.Epoch()}) {
			t.Errorf("synced at %v after the first list", f.synced)
		}
		requireRead(t, s, ":Synced() :Bookmark()")
	})
}
