package load

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNumbers(t *testing.T) {
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
		var n Numbers
		for _, ev := range test.events {
			n.Add(ev)
		}
		if n.Lost != test.lost || n.Repeated != test.repeated || n.Told != test.told {
			t.Errorf("%s: %+v, want %+v", name, n, test)
		}
	}
}
