package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReaderCountsWhatIsLost(t *testing.T) {
	event := func(seq uint64) pleg.Event { return pleg.Event{Seq: seq, Type: pleg.ContainerDied, PodUID: "p"} }
	mark := func(seq uint64) pleg.Event { return pleg.Event{Seq: seq, Type: pleg.Bookmark} }
	gap := pleg.Event{Type: pleg.Gap}
	replayed, found := event(3), event(7)
	replayed.Replayed, found.Replayed = true, true
	for name, test := range map[string]struct {
		events         []pleg.Event
		lost, repeated uint64
		told           int
	}{
		"all":                     {[]pleg.Event{mark(4), event(5), event(6), mark(6), event(7)}, 0, 0, 0},
		"one is lost":             {[]pleg.Event{mark(4), event(5), event(7)}, 1, 0, 0},
		"the first is lost":       {[]pleg.Event{mark(4), event(6)}, 1, 0, 0},
		"a mark shows two":        {[]pleg.Event{event(5), mark(7), event(8)}, 2, 0, 0},
		"one comes twice":         {[]pleg.Event{event(5), event(6), event(6)}, 0, 1, 0},
		"first state, live":       {[]pleg.Event{mark(6), found, event(8)}, 0, 0, 0},
		"first state is lost":     {[]pleg.Event{mark(5), found, event(8)}, 1, 0, 0},
		"a Gap tells":             {[]pleg.Event{event(5), gap, replayed, mark(20), event(21)}, 0, 0, 1},
		"lost after a Gap":        {[]pleg.Event{event(5), gap, replayed, mark(20), event(22)}, 1, 0, 1},
		"a Gap to another number": {[]pleg.Event{event(500), gap, mark(2), event(3)}, 0, 0, 1},
	} {
		var r reader
		for _, ev := range test.events {
			r.add(ev)
		}
		if r.Lost != test.lost || r.Repeated != test.repeated || r.Told != test.told {
			t.Errorf("%s: %+v, want %+v", name, r, test)
		}
	}
}

func TestJudge(t *testing.T) {
	fast := make([]time.Duration, 200)
	readers := func(bad reader) error { return judgeReaders([]*reader{{Served: true, Events: 3}, &bad}) }
	for name, test := range map[string]struct {
		err      error
		problems int
	}{
		"readers are well":      {readers(reader{Served: true, Told: 2, Events: 1}), 0},
		"one is not served":     {readers(reader{}), 1},
		"an event is lost":      {readers(reader{Served: true, Events: 1, Lost: 1}), 1},
		"an event comes twice":  {readers(reader{Served: true, Events: 1, Repeated: 1}), 1},
		"both of them":          {readers(reader{Served: true, Lost: 1, Repeated: 1}), 2},
		"the daemon is well":    {judgeDaemon(append([]time.Duration{time.Second}, fast...), maxRSS), 0},
		"no probe":              {judgeDaemon(nil, 0), 1},
		"a probe failed":        {judgeDaemon(append([]time.Duration{probeTimeout}, fast...), 0), 1},
		"probes were slow":      {judgeDaemon(append([]time.Duration{time.Second, time.Second, time.Second}, fast...), 0), 1},
		"too much memory":       {judgeDaemon(fast, maxRSS+1), 1},
		"slow, and much memory": {judgeDaemon([]time.Duration{time.Second}, maxRSS+1), 2},
	} {
		problems := 0
		if test.err != nil {
			problems = strings.Count(test.err.Error(), "\n") + 1
		}
		if problems != test.problems {
			t.Errorf("%s: %v, want %d problems", name, test.err, test.problems)
		}
	}
}
