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
			kit.Fill(f.Runtime, pods, fmt.Sprintf("c%d=running", round))
			kit.Relist(1)
		}
		everything := quick.Events()
		if want := pods * (1 + 3*(rounds-1)); len(everything) != want {
			f.Fatalf("the quick subscriber got %d events, want %d", len(everything), want)
		}
		slow.Resume()
		got := slow.Events()
		missed := f.sumRepairs(got, everything)
		if least := uint64(len(everything) / 2); missed < least {
			f.Errorf("%d of %d events were missed, want more than %d: too few for this test", missed, len(everything), least)
		}
		kit.Fill(f.Runtime, pods, "last=running")
		kit.Relist(1)
		live := eventsAfter(slow.Events(), everything[len(everything)-1].Seq)
		if got, want := seqs(live), seqs(eventsAfter(quick.Events(), everything[len(everything)-1].Seq)); len(got) < pods || got[0] != want[0] {
			f.Errorf("after the repairs: events %v, want %v, or its beginning", got, want)
		}
	})
}

// sumRepairs requires events up to some number, and then one PodSync for each pod
// that had later ones, with their number. It returns the sum.
func (f *fixture) sumRepairs(got, everything []pleg.Event) (sum uint64) {
	f.Helper()
	type repair struct{ missed, last uint64 }
	repaired := make(map[pleg.PodUID]repair)
	var last, upTo uint64
	for _, ev := range got {
		if ev.Seq <= last {
			f.Errorf("%+v after number %d", ev, last)
		}
		last = ev.Seq
		switch _, twice := repaired[ev.PodUID]; {
		case ev.Missed == 0 && len(repaired) > 0:
			f.Errorf("%+v came before the last repair", ev)
		case ev.Missed == 0:
			upTo = ev.Seq
		case ev.Type != pleg.PodSync || twice:
			f.Errorf("%+v: want one PodSync for each pod", ev)
		default:
			repaired[ev.PodUID] = repair{ev.Missed, ev.Seq}
			sum += ev.Missed
		}
	}
	want := make(map[pleg.PodUID]repair)
	for _, ev := range eventsAfter(everything, upTo) {
		want[ev.PodUID] = repair{want[ev.PodUID].missed + 1, ev.Seq}
	}
	for uid, want := range want {
		if got := repaired[uid]; got != want {
			f.Errorf("pod %s: got %+v, want %+v", uid, got, want)
		}
	}
	if len(repaired) != len(want) {
		f.Errorf("%d pods were repaired, want %d", len(repaired), len(want))
	}
	return sum
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
		var bookmark time.Time
		for _, ev := range v.Events() {
			if ev.Type == pleg.Bookmark {
				bookmark = ev.ObservedAt
			} else if ev.ObservedAt.Before(bookmark) {
				f.Errorf("%+v comes after the bookmark of %v", ev, bookmark)
			}
		}
		if i := slices.IndexFunc(plain.Events(), func(ev pleg.Event) bool { return ev.Type == pleg.Bookmark }); i >= 0 {
			f.Errorf("a subscriber without bookmarks got %+v", plain.Events()[i])
		}
	})
}

// A subscriber that is behind gets no bookmark until it has every event before it.
func TestContractBookmarksNotWhileBehind(t *testing.T) {
	inProcess(t, pipeline.Options{}, func(f *fixture) {
		var readers sync.WaitGroup
		for range 50 {
			sub, err := f.Subscribe(pipeline.SubscribeOptions{Buffer: 3, Bookmarks: true})
			if err != nil {
				f.Fatal(err)
			}
			readers.Go(func() { f.readAtTheLists(sub) })
		}
		f.live(2 * len(podLife))
		readers.Wait()
	})
}

// readAtTheLists starts to read once it is behind: two events at each list, so that
// the buffer has room, events are due and a bookmark comes at the same moment.
func (f *fixture) readAtTheLists(sub *pipeline.Subscription) {
	defer sub.Close()
	time.Sleep(time.Duration(2*len(podLife))*time.Second + 500*time.Millisecond)
	var marked bool
	for range livingPods {
		for range 2 {
			select {
			case ev := <-sub.Events():
				if marked && ev.Type != pleg.Bookmark {
					f.Errorf("%+v comes after a bookmark that covers it", ev)
				}
				marked = marked || ev.Type == pleg.Bookmark
			default:
			}
		}
		time.Sleep(time.Second)
	}
	if !marked {
		f.Error("no bookmark after the last repair")
	}
}
