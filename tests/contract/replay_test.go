package contract_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// seqs returns the sequence numbers of the events; marks are left out.
func seqs(events []pleg.Event) []uint64 {
	var numbers []uint64
	for _, ev := range events {
		if ev.PodUID != "" {
			numbers = append(numbers, ev.Seq)
		}
	}
	return numbers
}

// eventsAfter returns the events with a higher sequence number.
func eventsAfter(events []pleg.Event, seq uint64) []pleg.Event {
	i := slices.IndexFunc(events, func(ev pleg.Event) bool { return ev.Seq > seq })
	if i < 0 {
		return nil
	}
	return events[i:]
}

// untilSynced splits the events at the mark.
func (f *fixture) untilSynced(events []pleg.Event) (before []pleg.Event, mark pleg.Event, after []pleg.Event) {
	f.Helper()
	i := slices.IndexFunc(events, func(ev pleg.Event) bool { return ev.Type == pleg.Synced })
	if i < 0 {
		f.Fatalf("no Synced in %d events", len(events))
	}
	if mark = events[i]; mark.Epoch != f.Epoch() {
		f.Errorf("Synced has the epoch %q, want %q", mark.Epoch, f.Epoch())
	}
	return events[:i], mark, events[i+1:]
}

// A replay is the present state: for each container and sandbox its last event,
// marked as replayed, then one Synced. Every event up to the number of Synced is in
// it, and every later event follows once, even while events are being delivered.
func TestContractReplay(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		f.setDelays()
		all := f.subscribe(pipeline.SubscribeOptions{})
		f.live(3)
		var late []*kit.Subscriber
		for i := range 2 * len(podLife) {
			f.step()
			// Half a second from now the inspections begin, and their events follow.
			meanwhile := 500*time.Millisecond + time.Duration(20*i)*time.Millisecond
			time.Sleep(meanwhile)
			late = append(late, f.subscribe(pipeline.SubscribeOptions{Replay: true}))
			time.Sleep(time.Second - meanwhile)
		}
		f.live(3)
		everything := all.Events()
		for _, v := range late {
			replayed, mark, live := f.untilSynced(v.Events())
			f.sameReplay(replayed, everything, mark.Seq)
			if got, want := seqs(live), seqs(eventsAfter(everything, mark.Seq)); !slices.Equal(got, want) {
				f.Errorf("after Synced at %d: events %v, want %v", mark.Seq, got, want)
			}
			if slices.ContainsFunc(live, func(ev pleg.Event) bool { return ev.Replayed }) {
				f.Error("a live event is marked as replayed")
			}
		}
	})
}

// sameReplay requires the state that the events up to a number add up to.
func (f *fixture) sameReplay(got, everything []pleg.Event, seq uint64) {
	f.Helper()
	f.sameState(got, everything, seq, nil)
}

// sameState is sameReplay without the containers that have one of these events.
func (f *fixture) sameState(got, everything []pleg.Event, seq uint64, without []pleg.Event) {
	f.Helper()
	last := make(map[pleg.ContainerID]pleg.Event)
	for _, ev := range everything {
		if ev.Seq > seq {
			break
		}
		ev.Replayed = true
		switch key := pleg.ContainerID(ev.PodUID) + ev.ContainerID; ev.Type {
		case pleg.ContainerStarted, pleg.ContainerDied:
			last[key] = ev
		case pleg.ContainerRemoved:
			delete(last, key)
		}
	}
	for _, ev := range without {
		delete(last, pleg.ContainerID(ev.PodUID)+ev.ContainerID)
	}
	var want []pleg.Event
	for _, ev := range last {
		want = append(want, ev)
	}
	slices.SortFunc(want, func(a, b pleg.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	if !slices.EqualFunc(got, want, promises.Equal) {
		f.Errorf("replay at %d: %s\n\twant %s", seq, plegtest.Words(got...), plegtest.Words(want...))
	}
}

// A subscriber that resumes gets exactly the events that it has not seen, then one
// Synced, then live events.
func TestContractResume(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		all := f.subscribe(pipeline.SubscribeOptions{})
		numbered := f.subscribe(pipeline.SubscribeOptions{NetworkEvents: true}) // every number
		f.live(5)
		seen, published := all.Events(), numbered.Events()
		var resumed []*kit.Subscriber
		var from []uint64
		for i := 0; i < len(seen); i += 7 {
			after := pleg.Position{Epoch: f.Epoch(), Seq: seen[i].Seq}
			from = append(from, after.Seq)
			resumed = append(resumed, f.subscribe(pipeline.SubscribeOptions{After: after}))
		}
		f.live(3)
		everything := all.Events()
		for i, v := range resumed {
			before, mark, after := f.untilSynced(v.Events())
			got := append(slices.Clone(before), after...)
			if want := eventsAfter(everything, from[i]); !slices.EqualFunc(got, want, promises.Equal) {
				f.Errorf("resumed after %d: %v, want %v", from[i], seqs(got), seqs(want))
			}
			if last := published[len(published)-1].Seq; mark.Seq != last {
				f.Errorf("Synced has the number %d, want %d, that of the last event then", mark.Seq, last)
			}
		}
	})
}

// A subscriber that resumes and asks for the state gets what has not changed since its
// position, and then what it would get without the state.
func TestContractResumeWithTheState(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		all := f.subscribe(pipeline.SubscribeOptions{})
		f.live(5)
		var resumed []*kit.Subscriber
		var from []uint64
		seen := all.Events()
		for i := 0; i < len(seen); i += 7 {
			after := pleg.Position{Epoch: f.Epoch(), Seq: seen[i].Seq}
			from = append(from, after.Seq)
			resumed = append(resumed, f.subscribe(pipeline.SubscribeOptions{After: after, Replay: true}))
		}
		f.live(3)
		everything := all.Events()
		for i, v := range resumed {
			before, mark, after := f.untilSynced(v.Events())
			since := slices.IndexFunc(before, func(ev pleg.Event) bool { return !ev.Replayed })
			if since < 0 {
				since = len(before)
			}
			missed := eventsAfter(everything, from[i])
			until := slices.IndexFunc(missed, func(ev pleg.Event) bool { return ev.Seq > mark.Seq })
			if until < 0 {
				until = len(missed)
			}
			f.sameState(before[:since], everything, from[i], missed[:until])
			if got := append(slices.Clone(before[since:]), after...); !slices.EqualFunc(got, missed, promises.Equal) {
				f.Errorf("resumed after %d: %v, want %v", from[i], seqs(got), seqs(missed))
			}
		}
	})
}

// A subscriber that cannot resume gets a Gap with the reason, and then the present
// state.
func TestContractResumeTooLate(t *testing.T) {
	const kept = 50
	eachWay(t, pipeline.Options{History: kept}, func(f *fixture) {
		all := f.subscribe(pipeline.SubscribeOptions{NetworkEvents: true})
		f.live(9)
		everything := all.Events()
		last := everything[len(everything)-1].Seq
		if last < 2*kept {
			f.Fatalf("only %d events", last)
		}
		tests := []struct {
			name   string
			after  pleg.Position
			reason string
			missed uint64
		}{
			{"too old", pleg.Position{Epoch: f.Epoch(), Seq: 3}, pleg.HistoryTooShort, last - kept - 3},
			{"just too old", pleg.Position{Epoch: f.Epoch(), Seq: last - kept - 1}, pleg.HistoryTooShort, 1},
			{"another epoch", pleg.Position{Epoch: "other", Seq: last}, pleg.OtherEpoch, 0},
			{"a number that is not given yet", pleg.Position{Epoch: f.Epoch(), Seq: last + 1}, pleg.OtherEpoch, 0},
		}
		for _, tt := range tests {
			before, mark, _ := f.untilSynced(f.subscribe(pipeline.SubscribeOptions{After: tt.after}).Events())
			gap := before[0]
			if gap.Type != pleg.Gap || gap.Reason != tt.reason || gap.Missed != tt.missed || gap.Epoch != f.Epoch() {
				f.Errorf("%s: first comes %+v, want a Gap because of %s with %d missed", tt.name, gap, tt.reason, tt.missed)
			}
			f.sameReplay(before[1:], everything, mark.Seq)
		}
		v := f.subscribe(pipeline.SubscribeOptions{NetworkEvents: true, After: pleg.Position{Epoch: f.Epoch(), Seq: last - kept}})
		if before, _, _ := f.untilSynced(v.Events()); len(before) != kept || before[0].Type == pleg.Gap {
			f.Errorf("resumed at the end of the history: %d events, want %d and no Gap", len(before), kept)
		}
	})
}
