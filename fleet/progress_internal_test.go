package fleet

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestJudge(t *testing.T) {
	at := func(seq uint64) progress { return progress{epoch: "e", based: true, seq: seq} }
	events := func(epoch string, first, last uint64) message {
		return message{epoch: epoch, first: first, last: last}
	}
	gap := func(epoch string, last uint64) message {
		return message{epoch: epoch, first: last, last: last, gap: true}
	}
	tests := []struct {
		name string
		p    progress
		m    message
		want action
	}{
		{"the next events", at(5), events("e", 6, 8), deliver},
		{"some of them are known", at(5), events("e", 4, 8), deliver},
		{"all of them are known", at(5), events("e", 4, 5), skip},
		{"events are missing", at(5), events("e", 7, 8), replayHole},
		{"an epoch without its Gap", at(5), events("f", 6, 6), replayHole},
		{"a new epoch", at(5), gap("f", 0), replayGap},
		{"the history was too short", at(5), gap("e", 9), replayGap},
		{"a Gap before what is known", at(5), gap("e", 5), skip},
		{"the first message of a node", progress{}, events("e", 1, 1), replayHole},
		{"the first message of a node is a Gap", progress{}, gap("e", 0), replayGap},
		{"the first message after a replay", progress{epoch: "e", gapSeq: 2}, events("e", 9, 9), deliver},
		{"a Gap that the replay includes", progress{epoch: "e", gapSeq: 2}, gap("e", 2), skip},
		{"a Gap after the replay", progress{epoch: "e", gapSeq: 2}, gap("e", 3), replayGap},
		{"an older epoch than the replay", progress{epoch: "f", ahead: true, gapSeq: 1}, events("e", 6, 6), skip},
		{"the Gap of the replayed epoch", progress{epoch: "f", ahead: true, gapSeq: 1}, gap("f", 1), skip},
		{"another Gap before it", progress{epoch: "f", ahead: true, gapSeq: 1}, gap("g", 1), replayGap},
	}
	for _, tt := range tests {
		if got := tt.p.judge(tt.m); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestReplayedEventsAreNotNew(t *testing.T) {
	p := progress{epoch: "e", included: map[pleg.PodUID]uint64{"a": 7}}
	steps := []struct {
		uid  pleg.PodUID
		seq  uint64
		want bool
	}{{"a", 6, false}, {"b", 6, true}, {"a", 7, false}, {"a", 8, true}, {"a", 9, true}}
	for _, s := range steps {
		if got := p.isNew(&pleg.Event{PodUID: s.uid, Seq: s.seq}); got != s.want {
			t.Errorf("event %d of %s is new: %t, want %t", s.seq, s.uid, got, s.want)
		}
	}
	p.advance(message{epoch: "e", first: 6, last: 9})
	if p.isNew(&pleg.Event{PodUID: "c", Seq: 9}) || !p.isNew(&pleg.Event{PodUID: "c", Seq: 10}) {
		t.Errorf("after event 9, 9 is new or 10 is not: %+v", p)
	}
}
