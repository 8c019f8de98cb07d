package differ_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// A list is dated when it was asked for. If its answer takes long, events have a
// later date and tell of what the list has seen to be over: they bring nothing
// back. An event that was made after the answer does.
func TestEventFromBeforeTheAnswerToAListBringsNothingBack(t *testing.T) {
	const answered = 9 // the lists are answered at this time
	for name, tc := range map[string]struct {
		list        []*pleg.Pod // the second one
		told        string
		event, pod  string
		before, now string // told of the event, made before the answer and after it
	}{
		"removed":         {[]*pleg.Pod{plegtest.Pod("a", "/s=running")}, "Removed(c)", "d=running", "d=running c=exited /s=running", "Started(d)", "Started(d) Died(c)"},
		"removed sandbox": {[]*pleg.Pod{plegtest.Pod("a", "/t=running")}, "Removed(c) Died(/s) Removed(/s) Started(/t)", "c=exited", "c=exited /s=exited", "", "Died(c) Died(/s)"},
		"gone":            {nil, "Removed(c) Died(/s) Removed(/s)", "c=exited", "c=exited /s=exited", "", "Died(c) Died(/s)"},
	} {
		for _, late := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBed(t)
					time.Sleep(time.Until(at(answered)))
					b.settledList(t, plegtest.Pod("a", "c=exited /s=running"))
					b.list(tc.list...)
					c := b.take(t, "a", tc.told)
					b.settle(c.UID, nil)
					h, made, want := hint("a", tc.event, tc.pod), at(answered-1), tc.before
					if late {
						made, want = at(answered+1), tc.now
					}
					b.observe(stage.Observation{UID: "a", At: made, Hint: h})
					if want != "" {
						b.settle(b.take(t, "a", want).UID, nil)
					}
					b.requireQuiet(t)
				})
			})
		}
	}
}

// A list that has a container again is believed, and so are events from then on.
func TestListBringsAContainerBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		time.Sleep(time.Until(at(9)))
		b.settledList(t, plegtest.Pod("a", "c=running /s=running"))
		b.settledList(t, plegtest.Pod("a", "/s=running"))
		b.settledList(t, plegtest.Pod("a", "c=running /s=running"))
		b.hear(1, hint("a", "c=exited", "c=exited /s=running"))
		b.take(t, "a", "Died(c)")
	})
}
