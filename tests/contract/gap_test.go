package pipeline_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// A subscriber that does not keep up is told how many events it missed, with
// one PodSync for each pod of which it missed any, before anything newer; who
// keeps up notices nothing.
func TestContractGap(t *testing.T) {
	// One list makes less than the buffer holds, all make more than the
	// transport of the socket does.
	const pods, rounds, buffer = 100, 20, 400
	eachWay(t, pipeline.Options{Inspectors: pods}, func(b *contractBed) {
		quick := b.subscribe(pipeline.SubscribeOptions{})
		slow := b.subscribe(pipeline.SubscribeOptions{Buffer: buffer})
		slow.pause()
		for round := range rounds {
			b.node.Fill(pods, fmt.Sprintf("c%d=running", round))
			b.relist(1)
		}
		everything := quick.events()
		if want := pods * (1 + 3*(rounds-1)); len(everything) != want {
			b.Fatalf("the quick subscriber got %d events, want %d", len(everything), want)
		}
		slow.proceed()
		got := slow.events()
		missed := b.judgeRepairs(got, everything)
		if least := uint64(len(everything) / 2); missed < least {
			b.Errorf("%d of %d events were missed, want more than %d: the test does not test much", missed, len(everything), least)
		}
		b.node.Fill(pods, "last=running")
		b.relist(1)
		live := behind(slow.events(), everything[len(everything)-1].Seq)
		if got, want := seqs(live), seqs(behind(quick.events(), everything[len(everything)-1].Seq)); len(got) < pods || got[0] != want[0] {
			b.Errorf("after the repairs: events %v, want %v, or its beginning", got, want)
		}
	})
}

// judgeRepairs wants events up to some number, and then one PodSync for each
// pod that had more, with their number. It returns the sum.
func (b *contractBed) judgeRepairs(got, everything []pleg.Event) (sum uint64) {
	b.Helper()
	type repair struct{ missed, last uint64 }
	repaired := make(map[pleg.PodUID]repair)
	var last, upTo uint64
	for _, ev := range got {
		if ev.Seq <= last {
			b.Errorf("%+v after number %d", ev, last)
		}
		last = ev.Seq
		switch _, twice := repaired[ev.PodUID]; {
		case ev.Missed == 0 && len(repaired) > 0:
			b.Errorf("%+v came before all was made good", ev)
		case ev.Missed == 0:
			upTo = ev.Seq
		case ev.Type != pleg.PodSync || twice:
			b.Errorf("%+v: want one PodSync for each pod", ev)
		default:
			repaired[ev.PodUID] = repair{ev.Missed, ev.Seq}
			sum += ev.Missed
		}
	}
	want := make(map[pleg.PodUID]repair)
	for _, ev := range behind(everything, upTo) {
		want[ev.PodUID] = repair{want[ev.PodUID].missed + 1, ev.Seq}
	}
	for uid, want := range want {
		if got := repaired[uid]; got != want {
			b.Errorf("pod %s: got %+v, want %+v", uid, got, want)
		}
	}
	if len(repaired) != len(want) {
		b.Errorf("%d pods were made good, want %d", len(repaired), len(want))
	}
	return sum
}

// A bookmark comes after each list that is settled, for who asked for it, and
// says up to when all is delivered.
func TestContractBookmarks(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(b *contractBed) {
		v := b.subscribe(pipeline.SubscribeOptions{Bookmarks: true})
		plain := b.subscribe(pipeline.SubscribeOptions{})
		start := time.Now()
		b.relist(3)
		quiet := v.events()
		if len(quiet) < 2 || slices.ContainsFunc(quiet, func(ev pleg.Event) bool { return ev.Type != pleg.Bookmark || ev.Seq != 0 }) {
			b.Fatalf("three lists without pods: %+v, want bookmarks with number 0", quiet)
		}
		for i, ev := range quiet {
			// The first list after the start is half a second later.
			if want := start.Add(time.Duration(i)*time.Second + 500*time.Millisecond); ev.ObservedAt.After(want) || ev.ObservedAt.Before(want.Add(-time.Second)) {
				b.Errorf("bookmark %d is of %v, want %v or the list before", i, ev.ObservedAt, want)
			}
			if ev.Epoch != b.pipe.Epoch() {
				b.Errorf("bookmark %d has the epoch %q, want %q", i, ev.Epoch, b.pipe.Epoch())
			}
		}
		b.live(len(contractLife))
		var bookmark time.Time
		for _, ev := range v.events() {
			if ev.Type == pleg.Bookmark {
				bookmark = ev.ObservedAt
			} else if ev.ObservedAt.Before(bookmark) {
				b.Errorf("%+v comes after the bookmark of %v", ev, bookmark)
			}
		}
		if i := slices.IndexFunc(plain.events(), func(ev pleg.Event) bool { return ev.Type == pleg.Bookmark }); i >= 0 {
			b.Errorf("who asked for no bookmarks got %+v", plain.events()[i])
		}
	})
}

// A subscriber that is behind gets no bookmark until it has all that it says.
func TestContractBookmarksNotWhileBehind(t *testing.T) {
	synctestInProcess(t, func(b *contractBed) {
		var readers sync.WaitGroup
		for range 50 {
			sub, err := b.pipe.Subscribe(pipeline.SubscribeOptions{Buffer: 3, Bookmarks: true})
			if err != nil {
				b.Fatal(err)
			}
			readers.Go(func() { b.readAtTheLists(sub) })
		}
		b.live(2 * len(contractLife))
		readers.Wait()
	})
}

// readAtTheLists reads two events at the moment of each list once it is behind:
// room in the buffer, what is due and a bookmark come at once.
func (b *contractBed) readAtTheLists(sub *pipeline.Subscription) {
	defer sub.Close()
	time.Sleep(time.Duration(2*len(contractLife))*time.Second + 500*time.Millisecond)
	var marked bool
	for range contractPods {
		for range 2 {
			select {
			case ev := <-sub.Events():
				if marked && ev.Type != pleg.Bookmark {
					b.Errorf("after a bookmark comes %+v, which it says is there", ev)
				}
				marked = marked || ev.Type == pleg.Bookmark
			default:
			}
		}
		time.Sleep(time.Second)
	}
	if !marked {
		b.Error("no bookmark after all was made good")
	}
}
