package shim

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func at(seconds float64) time.Time {
	return time.Unix(1e9, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		relist pleg.RelistStatus
		slow   time.Time
		want   bool
	}{
		"as usual":       {want: true},
		"a list started": {relist: pleg.RelistStatus{Started: at(98.001)}, want: true},
		"2 s ago":        {relist: pleg.RelistStatus{Started: at(98)}},
		"a list failed":  {relist: pleg.RelistStatus{Failures: 1}},
		"slowly":         {slow: at(99)},
	} {
		s := pleg.Status{At: at(100), Relist: test.relist, Details: nodestate.State{Since: nodestate.Since{Slow: test.slow}}}
		if got := answers(s); got != test.want {
			t.Errorf("%s: answers %t, want %t", name, got, test.want)
		}
	}
}

// TestEndIsLost uses a container that ended at 100 s. A status counts from the last time at which the runtime could not know better:
// not before the end, while the shim was held, while the runtime did not answer, and, for five minutes, while the node was overloaded.
func TestEndIsLost(t *testing.T) {
	never := time.Time{}
	stopped := &nodestate.Process{PID: 7, State: "T"}
	for name, test := range map[string]struct {
		before                         container
		answering, relieved, shimSince time.Time
		asOf, now                      float64
		lost                           bool
		since                          time.Time
		after                          container // except ended
	}{
		"just ended":        {asOf: 100, now: 100, since: at(100)},
		"not yet":           {asOf: 104.999, now: 105, since: at(100)},
		"after 5 s":         {asOf: 105, now: 105, lost: true, since: at(100), after: container{found: true}},
		"held until 110":    {before: container{held: at(110)}, asOf: 114.999, now: 120, since: at(110), after: container{held: at(110)}},
		"and after it":      {before: container{held: at(110)}, asOf: 115, now: 120, lost: true, since: at(110), after: container{held: at(110), found: true}},
		"busy until 120":    {before: container{held: at(110)}, answering: at(120), asOf: 124.999, now: 130, since: at(120), after: container{held: at(110)}},
		"overloaded":        {answering: at(120), relieved: at(130), asOf: 134.999, now: 140, since: at(130), after: container{late: at(130)}},
		"and no more":       {answering: at(120), relieved: at(130), asOf: 135, now: 140, lost: true, since: at(130), after: container{late: at(130), found: true}},
		"for five minutes":  {relieved: at(1000), asOf: 404.999, now: 1000, since: at(400), after: container{late: at(400)}},
		"for longer":        {relieved: at(1000), asOf: 405, now: 1000, lost: true, since: at(400), after: container{late: at(400), found: true}},
		"found before":      {before: container{found: true, late: at(130)}, relieved: at(1000), asOf: 135, now: 1000, lost: true, since: at(130), after: container{found: true, late: at(130)}},
		"found, busy again": {before: container{found: true}, answering: at(200), asOf: 204, now: 205, since: at(200), after: container{found: true}},

		"held":                    {before: container{shim: 7}, shimSince: at(90), asOf: 100.5, now: 100.5, since: at(90), after: container{shim: 7, ask: at(101), held: at(100.5)}},
		"held again":              {before: container{shim: 7, held: at(100.25), ask: at(103)}, shimSince: at(90), asOf: 100.999, now: 103, since: at(90), after: container{shim: 7, ask: at(103), held: at(103)}},
		"held, and listed":        {before: container{shim: 7, held: at(100)}, shimSince: at(90), asOf: 101, now: 102, lost: true, since: at(90), after: container{shim: 7, ask: at(104), held: at(102)}},
		"held, and listed early":  {before: container{shim: 7, held: at(100)}, shimSince: at(90), asOf: 101, now: 101.999, since: at(90), after: container{shim: 7, ask: at(103.999), held: at(101.999)}},
		"ended, then held":        {before: container{shim: 7, held: at(100)}, shimSince: at(110), asOf: 111.999, now: 111.999, since: at(100), after: container{shim: 7, ask: at(113.999), held: at(111.999)}},
		"ended, then held longer": {before: container{shim: 7, held: at(100)}, shimSince: at(110), asOf: 101, now: 112, lost: true, since: at(100), after: container{shim: 7, ask: at(114), held: at(112)}},
	} {
		w := New(Options{})
		w.answering, w.relieved = test.answering, test.relieved
		w.shims[8] = &shim{process: stopped, since: at(1)}
		w.shims[7] = &shim{since: test.shimSince}
		if test.shimSince != never {
			w.shims[7].process = stopped
		}
		c, stuck := test.before, nodestate.Stuck{UID: "u"}
		c.ended, test.after.ended = at(100), at(100)
		lost := w.endIsLost(&c, at(test.asOf), at(test.now), &stuck)
		if want := (nodestate.Stuck{UID: "u", Since: test.since, Shim: w.shims[7].process}); lost != test.lost || stuck != want {
			t.Errorf("%s: lost %t, %+v, want %t, %+v", name, lost, stuck, test.lost, want)
		}
		if c != test.after {
			t.Errorf("%s: the container is %+v, want %+v", name, c, test.after)
		}
	}
}
