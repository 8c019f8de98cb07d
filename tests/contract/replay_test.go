package pipeline_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// seqs returns the numbers of the events that are no marks.
func seqs(events []pleg.Event) []uint64 {
	var numbers []uint64
	for _, ev := range events {
		if ev.PodUID != "" {
			numbers = append(numbers, ev.Seq)
		}
	}
	return numbers
}

// behind returns those of the events that have a higher number.
func behind(events []pleg.Event, seq uint64) []pleg.Event {
	i := slices.IndexFunc(events, func(ev pleg.Event) bool { return ev.Seq > seq })
	if i < 0 {
		return nil
	}
	return events[i:]
}

// untilSynced splits the events at the mark.
func (b *contractBed) untilSynced(events []pleg.Event) (before []pleg.Event, mark pleg.Event, after []pleg.Event) {
	b.Helper()
	i := slices.IndexFunc(events, func(ev pleg.Event) bool { return ev.Type == pleg.Synced })
	if i < 0 {
		b.Fatalf("no Synced in %d events", len(events))
	}
	if mark = events[i]; mark.Epoch != b.pipe.Epoch() {
		b.Errorf("Synced has the epoch %q, want %q", mark.Epoch, b.pipe.Epoch())
	}
	return events[:i], mark, events[i+1:]
}

// A replay is the present state: for each container and sandbox the event that
// brought it where it is, marked as replayed, then one Synced. Everything up to
// the number of Synced is in it, everything behind follows once, however fast
// the events flow.
func TestContractReplay(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(b *contractBed) {
		b.node.Delay = delays()
		all := b.subscribe(pipeline.SubscribeOptions{})
		b.live(3)
		var late []*view
		for i := range 2 * len(contractLife) {
			b.step()
			// The inspections have begun half a second from now, and the
			// events are on their way.
			meanwhile := 500*time.Millisecond + time.Duration(20*i)*time.Millisecond
			time.Sleep(meanwhile)
			late = append(late, b.subscribe(pipeline.SubscribeOptions{Replay: true}))
			time.Sleep(time.Second - meanwhile)
		}
		b.live(3)
		everything := all.events()
		for _, v := range late {
			replayed, mark, live := b.untilSynced(v.events())
			b.sameReplay(replayed, everything, mark.Seq)
			if got, want := seqs(live), seqs(behind(everything, mark.Seq)); !slices.Equal(got, want) {
				b.Errorf("after Synced at %d: events %v, want %v", mark.Seq, got, want)
			}
			if slices.ContainsFunc(live, func(ev pleg.Event) bool { return ev.Replayed }) {
				b.Error("a live event is marked as replayed")
			}
		}
	})
}

// sameReplay wants what the events up to a number add up to.
func (b *contractBed) sameReplay(got, everything []pleg.Event, seq uint64) {
	b.Helper()
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
	var want []pleg.Event
	for _, ev := range last {
		want = append(want, ev)
	}
	slices.SortFunc(want, func(a, b pleg.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	if !slices.EqualFunc(got, want, equalEvents) {
		b.Errorf("replay at %d: %s\n\twant %s", seq, plegtest.Words(got...), plegtest.Words(want...))
	}
}

// equalEvents compares events that may have been through a protocol.
func equalEvents(a, b pleg.Event) bool {
	sameExit := (a.ExitCode == nil) == (b.ExitCode == nil) && (a.ExitCode == nil || *a.ExitCode == *b.ExitCode)
	sameTime := a.ObservedAt.Equal(b.ObservedAt)
	a.ExitCode, b.ExitCode, a.ObservedAt, b.ObservedAt = nil, nil, time.Time{}, time.Time{}
	return a == b && sameExit && sameTime
}

// Who resumes gets exactly what it has not seen, then one Synced, then what
// happens live.
func TestContractResume(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(b *contractBed) {
		all := b.subscribe(pipeline.SubscribeOptions{})
		b.live(5)
		seen := all.events()
		var resumed []*view
		var from []uint64
		for i := 0; i < len(seen); i += 7 {
			after := pipeline.Position{Epoch: b.pipe.Epoch(), Seq: seen[i].Seq}
			if i%2 == 0 {
				after.Epoch = ""
			}
			from = append(from, after.Seq)
			resumed = append(resumed, b.subscribe(pipeline.SubscribeOptions{After: after}))
		}
		b.live(3)
		everything := all.events()
		for i, v := range resumed {
			before, mark, after := b.untilSynced(v.events())
			got := append(slices.Clone(before), after...)
			if want := behind(everything, from[i]); !slices.EqualFunc(got, want, equalEvents) {
				b.Errorf("resumed after %d: %v, want %v", from[i], seqs(got), seqs(want))
			}
			if last := seen[len(seen)-1].Seq; mark.Seq != last {
				b.Errorf("Synced has the number %d, want %d, that of the last event then", mark.Seq, last)
			}
		}
	})
}

// Who cannot resume is told why, and gets the present state instead.
func TestContractResumeTooLate(t *testing.T) {
	const kept = 50
	eachWay(t, pipeline.Options{History: kept}, func(b *contractBed) {
		all := b.subscribe(pipeline.SubscribeOptions{NetworkEvents: true})
		b.live(9)
		everything := all.events()
		last := everything[len(everything)-1].Seq
		if last < 2*kept {
			b.Fatalf("only %d events", last)
		}
		tests := []struct {
			name   string
			after  pipeline.Position
			reason string
			missed uint64
		}{
			{"too old", pipeline.Position{Epoch: b.pipe.Epoch(), Seq: 3}, pleg.HistoryTooShort, last - kept - 3},
			{"just too old", pipeline.Position{Seq: last - kept - 1}, pleg.HistoryTooShort, 1},
			{"another epoch", pipeline.Position{Epoch: "other", Seq: last}, pleg.OtherEpoch, 0},
			{"a number that is not given yet", pipeline.Position{Seq: last + 1}, pleg.OtherEpoch, 0},
		}
		for _, tt := range tests {
			before, mark, _ := b.untilSynced(b.subscribe(pipeline.SubscribeOptions{After: tt.after}).events())
			gap := before[0]
			if gap.Type != pleg.Gap || gap.Reason != tt.reason || gap.Missed != tt.missed || gap.Epoch != b.pipe.Epoch() {
				b.Errorf("%s: first comes %+v, want a Gap because of %s with %d missed", tt.name, gap, tt.reason, tt.missed)
			}
			b.sameReplay(before[1:], everything, mark.Seq)
		}
		v := b.subscribe(pipeline.SubscribeOptions{NetworkEvents: true, After: pipeline.Position{Seq: last - kept}})
		if before, _, _ := b.untilSynced(v.events()); len(before) != kept || before[0].Type == pleg.Gap {
			b.Errorf("resumed at the end of the history: %d events, want %d and no Gap", len(before), kept)
		}
	})
}
