package fleet

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Two of three parts are watched. Their Synced and Bookmarks become one, with the older time, and an
// event has a position while both parts have one.
func TestJoin(t *testing.T) {
	began := time.Now()
	steps := []struct {
		part   int
		typ    pleg.EventType
		node   string
		at     string
		want   bool   // the event is delivered
		wantAt string // with this position
		wantOf int    // and the time of this step
	}{
		{0, pleg.ContainerStarted, "n", "", true, "", 0},
		{2, pleg.Synced, "", "c:1", false, "", 0},
		{2, pleg.ContainerDied, "m", "c:2", true, "", 2},
		{0, pleg.Synced, "", "a:1", true, "a:1,,c:2", 1},
		{0, pleg.ContainerDied, "n", "a:2+1", true, "a:2+1,,c:2", 4},
		{2, pleg.Gap, "m", "", true, "", 5},
		{0, pleg.ContainerStarted, "n", "a:2", true, "", 6},
		{2, pleg.Synced, "m", "c:4", true, "a:2,,c:4", 7},
		{0, pleg.Bookmark, "", "a:5", false, "", 0},
		{0, pleg.Bookmark, "", "a:6", false, "", 0},
		{2, pleg.Bookmark, "", "c:6", true, "a:6,,c:6", 9},
		{0, pleg.Bookmark, "", "a:7", false, "", 0},
		{0, pleg.Gap, "n", "", true, "", 12},
		{2, pleg.Bookmark, "", "c:7", false, "", 0}, // it would have no position
		{0, pleg.Synced, "n", "a:8", true, "a:8,,c:7", 14},
		{0, pleg.Bookmark, "", "a:8", true, "a:8,,c:7", 13},
	}
	var got []Event
	j := &join{at: make([]string, 3), parts: map[int][]string{0: nil, 2: nil}, synced: make(map[int]time.Time), marked: make(map[int]time.Time)}
	j.one.o.Bookmarks = true
	j.one.yield = func(ev Event, _ error) bool { got = append(got, ev); return true }
	for i, s := range steps {
		ev := Event{Node: s.node, At: Position(s.at), Event: pleg.Event{Type: s.typ, ObservedAt: began.Add(time.Duration(i))}}
		got = nil
		kit.Must(t, j.deliver(s.part, ev))
		switch {
		case s.want != (len(got) == 1):
			t.Errorf("step %d: %d events are delivered", i, len(got))
		case !s.want:
		case string(got[0].At) != s.wantAt || !got[0].ObservedAt.Equal(began.Add(time.Duration(s.wantOf))):
			t.Errorf("step %d: %v at %q, want that of step %d and %q", i, got[0].ObservedAt, got[0].At, s.wantOf, s.wantAt)
		}
	}
}
