package contract_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

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

// A subscriber that cannot resume gets a Gap with the reason, and then the present
// state.
func TestContractResumeTooLate(t *testing.T) {
	const kept = 50
	eachWay(t, pipeline.Options{History: kept}, func(f *fixture) {
		all := f.subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{NetworkEvents: true}})
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
			v := f.subscribe(pipeline.SubscribeOptions{After: tt.after})
			f.require(tt.name, v, all)
			if gap := v.stream.Events[0]; gap.Type != pleg.Gap || gap.Reason != tt.reason || gap.Missed != tt.missed {
				f.Errorf("%s: first comes %+v, want a Gap because of %s with %d missed", tt.name, gap, tt.reason, tt.missed)
			}
		}
		v := f.subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{NetworkEvents: true}, After: pleg.Position{Epoch: f.Epoch(), Seq: last - kept}})
		f.require("at the end of the history", v, all)
		if first := v.stream.Events[0]; first.Type == pleg.Gap {
			f.Errorf("at the end of the history: %+v", first)
		}
	})
}

// Since asks for the events of a time and later, as far as the history has them, and then
// for a Synced. It is never a Gap.
func TestContractSince(t *testing.T) {
	const kept = 50
	eachWay(t, pipeline.Options{History: kept}, func(f *fixture) {
		all := f.subscribe(pipeline.SubscribeOptions{})
		f.live(9)
		everything := all.Events()
		latest := everything[len(everything)-1].ObservedAt
		for _, since := range []time.Time{everything[0].ObservedAt, latest, time.Now()} {
			v := f.subscribe(pipeline.SubscribeOptions{Since: since})
			synctest.Wait()
			got, mark, _ := f.untilSynced(v.Events())
			var want []pleg.Event
			for _, ev := range everything {
				if ev.Seq+kept > mark.Seq && !ev.ObservedAt.Before(since) {
					want = append(want, ev)
				}
			}
			if !slices.EqualFunc(got, want, func(a, b pleg.Event) bool { return a.Seq == b.Seq }) {
				f.Errorf("since %v: got %s, want %s", time.Since(since), plegtest.Words(got...), plegtest.Words(want...))
			}
		}
	})
}
