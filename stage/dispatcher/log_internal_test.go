package dispatcher

import (
	"reflect"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func at(second int64) time.Time { return time.Unix(second, 0) }

// A position in time and the age of what is unread count the events that the log still has.
func TestLogByTime(t *testing.T) {
	l := newLog(3)
	for seq := range uint64(5) {
		seq++
		l.append(&entry{event: pleg.Event{Seq: seq, ObservedAt: at(int64(10 * seq))}, at: time.Duration(seq) * time.Second})
	}
	for first, want := range map[uint64]time.Duration{1: 3 * time.Second, 3: 3 * time.Second, 4: 4 * time.Second, 5: 5 * time.Second, 6: 0} {
		if got := l.oldest(first, 5); got != want {
			t.Errorf("the oldest from event %d on was published after %v, want %v", first, got, want)
		}
	}
	for since, want := range map[int64]uint64{1: 2, 30: 2, 31: 3, 50: 4, 51: 5} {
		if got := l.before(at(since), 5); got != want {
			t.Errorf("second %d is behind event %d, want %d", since, got, want)
		}
	}
	if got := l.before(at(40), 3); got != 3 {
		t.Errorf("of the events up to 3, second 40 is behind %d", got)
	}
	if got := len(newLog(0).ring); got != 1 {
		t.Errorf("the shortest log has %d events", got)
	}
}

// An event is as old as the change that it describes, if its status says when that was.
func TestHappened(t *testing.T) {
	for kind, want := range map[pleg.EventType][2]int64{
		pleg.ContainerStarted: {1, 3}, pleg.ContainerDied: {2, 3}, pleg.ContainerRemoved: {3, 3}, pleg.PodSync: {3, 3},
	} {
		for n, ev := range []pleg.Event{{StartedAt: at(1), FinishedAt: at(2)}, {}} {
			ev.Type, ev.ObservedAt = kind, at(3)
			if got := happened(&ev); got != at(want[n]) {
				t.Errorf("%+v happened at %v, want %v", ev, got, at(want[n]))
			}
		}
	}
}

// A bookmark is as old as the first pod behind it that the subscriber wants.
func TestBookmarkOfASubscriber(t *testing.T) {
	labeled := plegtest.Pod("b", "c=running")
	labeled.Namespace = "other"
	b := &bookmark{current: at(9), behind: []behind{{plegtest.Pod("a", "c=running"), nil, at(5)}, {labeled, map[string]string{"app": "web"}, at(7)}}}
	for name, tc := range map[string]struct {
		filter pleg.Filter
		want   int64
	}{
		"all pods":            {pleg.Filter{}, 5},
		"the first":           {pleg.Filter{PodUIDs: []pleg.PodUID{"a"}}, 5},
		"the second":          {pleg.Filter{PodUIDs: []pleg.PodUID{"b"}}, 7},
		"its namespace":       {pleg.Filter{Namespaces: []string{"other"}}, 7},
		"its label":           {pleg.Filter{Selector: "app=web"}, 7},
		"another label":       {pleg.Filter{Selector: "app=db"}, 9},
		"a pod that is ahead": {pleg.Filter{PodUIDs: []pleg.PodUID{"c"}}, 9},
	} {
		f, err := filter.New(tc.filter)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.currentFor(&Subscription{filter: f}); got != at(tc.want) {
			t.Errorf("%s: current at %v, want %v", name, got, at(tc.want))
		}
	}
}

// The present state has the last step of each container, as it was corrected.
func TestPresentState(t *testing.T) {
	var p presentPod
	for n, ev := range []pleg.Event{
		{Type: pleg.ContainerCorrected, ContainerID: "unknown", Image: "i"},
		{Type: pleg.ContainerRemoved, ContainerID: "unknown"},
		{Type: pleg.ContainerCreated, ContainerID: "a"},
		{Type: pleg.ContainerCorrected, ContainerID: "a", Image: "early"},
		{Type: pleg.ContainerStarted, ContainerID: "b"},
		{Type: pleg.ContainerStarted, ContainerID: "c"},
		{Type: pleg.ContainerDied, ContainerID: "b"},
		{Type: pleg.ContainerCorrected, ContainerID: "b", Image: "i", StartedAt: at(1), FinishedAt: at(2), ExitCode: new(int32(3)), Reason: "Error"},
		{Type: pleg.ContainerRemoved, ContainerID: "c"},
		{Type: pleg.PodSync},
		{Type: pleg.ContainerStarted, ContainerID: "d"},
		{Type: pleg.ContainerCorrected, ContainerID: "d", Image: "i", StartedAt: at(4)},
	} {
		ev.Seq = uint64(n)
		p.add(&entry{event: ev})
	}
	var got []pleg.Event
	for _, e := range p.last {
		got = append(got, e.event)
	}
	want := []pleg.Event{
		{Seq: 2, Type: pleg.ContainerCreated, ContainerID: "a"},
		{Seq: 6, Type: pleg.ContainerDied, ContainerID: "b", Image: "i", StartedAt: at(1), FinishedAt: at(2), ExitCode: new(int32(3)), Reason: "Error"},
		{Seq: 10, Type: pleg.ContainerStarted, ContainerID: "d", Image: "i", StartedAt: at(4)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("present are\n%+v, want\n%+v", got, want)
	}
}
