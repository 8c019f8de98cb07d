package differ

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each script contains steps with semicolons between them, for the one pod of explore_internal_test.go:
//
//	list WORDS           a list of all pods that shows the pod; "-" shows it gone
//	all< WORDS, all>     such a list begins, and is answered
//	one< WORDS, one>     the same of a list of the pod alone
//	event ID=STATE       a CRI event; states are also removed, and ended and unstarted, with a final status
//	down, up             the event stream is down when the next lists begin, and up again
//	inspect, retry       the inspector accepts what it may; "none" if there is nothing
//	ok, fail, hang, late how that inspection ends; hangs: it hangs, and has not ended
//	contradicts          it succeeded, and its status contradicts the list
//	superseded           the same, because the pod is gone
//	left                 the change of a pod that is gone is committed
//	reinspect, request   the request of a caller
//	hint                 an event ends the wait of the pod
//	wait DURATION        time passes
//
// The effects are recorded: events, cancel, end-after (of a request), gone (the pod leaves), relist (of the pod alone), soon
// (of all pods), covered or pending (a list of all, for the cache), touch, and mark.
var scripts = map[string]struct{ script, want string }{
	"a pod starts, dies and is removed": {
		"list a=running; inspect; ok; list a=exited; inspect; ok; list -; left; list -",
		"pending inspect Started(a) mark pending inspect Died(a) mark pending gone Removed(a) mark covered mark",
	},
	"an unchanged list covers the pod": {"list a=running; inspect; ok; list a=running", "pending inspect Started(a) mark covered mark"},
	"only the order differs":           {"list a=running b=running; inspect; ok; list b=running a=running", "pending inspect Started(a) Started(b) mark covered mark"},
	"after a failure the next list finds the change again": {
		"list a=running; inspect; fail; list a=running; inspect; ok",
		"pending inspect soon mark pending inspect Started(a) mark",
	},
	"a change that is undone while inspections fail is a PodSync": {
		"list a=running; inspect; ok; list a=exited; inspect; fail; list a=running; inspect; ok",
		"pending inspect Started(a) mark pending inspect soon mark pending inspect PodSync mark",
	},
	"a change that is undone before its inspection is none": {
		"list a=running; inspect; ok; list a=exited; list a=running; inspect",
		"pending inspect Started(a) mark pending covered mark none",
	},
	"a container that runs again after its end": {
		"list a=exited; inspect; ok; list a=running; inspect; ok; list a=exited; inspect; ok",
		"pending inspect Ran(a) Died(a) mark pending inspect Changed(a) mark pending inspect Changed(a) mark",
	},
	"what is listed meanwhile is inspected next": {
		"list a=running; inspect; list a=exited; ok; inspect; ok",
		"pending inspect pending Started(a) mark inspect Died(a) mark",
	},
	"an unchanged list meanwhile": {"list a=running; inspect; list a=running; ok", "pending inspect pending Started(a) touch mark"},
	"an event meanwhile, of which a list shows nothing": {
		"list a=created; inspect; event a=running; list a=unknown; ok", "pending inspect pending Created(a) touch mark",
	},
	"only the newest counts, and what came and went between is told": {
		"list a=running; inspect; list a=running b=running; list a=running c=running; ok; inspect; ok",
		"pending inspect pending pending Started(a) mark inspect Started(b) Died(b) Removed(b) Started(c) mark",
	},
	"what was only seen exited may not have run": {
		"list a=running; inspect; list a=running b=exited; list a=running c=running; ok; inspect; ok",
		"pending inspect pending pending Started(a) mark inspect Ran(b) Died(b) Removed(b) Started(c) mark",
	},
	"an answer that began before a newer one arrived does not count, and the pod is listed again": {
		"list -; all< -; one< a=running; one>; all>; inspect; ok",
		"covered mark pending inspect Started(a) mark",
	},
	"an older answer that is not overtaken asks again": {
		"list a=running; inspect; ok; one< a=running; all< a=exited; one>; all>; one< a=exited; one>; inspect; ok",
		"pending inspect Started(a) mark touch relist pending mark inspect Died(a)",
	},
	"a pod that is gone does not come back with an older list": {
		"list a=running; inspect; ok; all< a=running; one< -; one>; left; all>",
		"pending inspect Started(a) mark gone Died(a) Removed(a) covered mark",
	},
	"answers from before the first list count in their order": {
		"all< -; one< a=running; one>; one< a=exited b=running; one>; all>; inspect; ok",
		"pending inspect Ran(a) Died(a) Started(b) mark",
	},
	"an older answer about a pod that no list has is none": {"one< a=running; list -; one>; inspect", "covered mark none"},
	"a pod that is gone ends its inspection, and what was listed is told": {
		"list a=running /s=running; inspect; list -; superseded; left",
		"pending inspect cancel pending gone Started(a) Died(a) Removed(a) Started(/s) Died(/s) Removed(/s) mark",
	},
	"a UID that comes back is inspected at once": {
		"list a=running; inspect; ok; list a=exited; inspect; list b=running; superseded; inspect; ok",
		"pending inspect Started(a) mark pending inspect cancel pending inspect Died(a) Removed(a) Started(b) mark",
	},
	"a pod that is replaced at each list gets a status": {
		"list a=running; inspect; list b=running; superseded; inspect; list c=running; ok; inspect; ok",
		"pending inspect cancel pending inspect pending Started(a) Died(a) Removed(a) Started(b) mark inspect Died(b) Removed(b) Started(c) mark",
	},
	"once it has one, it is replaced at once again": {
		"list a=running; inspect; list b=running; superseded; inspect; ok; list c=running; inspect; list d=running",
		"pending inspect cancel pending inspect Started(a) Died(a) Removed(a) Started(b) mark pending inspect cancel pending",
	},
	"a reinspection waits for the next list": {
		"list a=running; inspect; ok; reinspect; inspect; list a=running; inspect; ok; list a=running",
		"pending inspect Started(a) mark soon none pending reinspect PodSync mark covered mark",
	},
	"a reinspection of a pod that the next list shows first": {
		"reinspect; list a=running; inspect; ok", "soon pending reinspect Started(a) mark",
	},
	"a request during an inspection counts": {
		"list a=running; inspect; reinspect; ok; inspect; list a=running; inspect; ok",
		"pending inspect soon end-after-1s Started(a) mark none pending reinspect PodSync mark",
	},
	"a reinspection that fails is still one": {
		"list a=running; inspect; ok; reinspect; list a=running; inspect; fail; list a=running; inspect; ok",
		"pending inspect Started(a) mark soon pending reinspect soon mark pending reinspect PodSync mark",
	},
	"a reinspection of a pod that is replaced meanwhile is still one": {
		"list a=running; inspect; ok; reinspect; list a=running; inspect; list b=running; superseded; inspect; ok",
		"pending inspect Started(a) mark soon pending reinspect cancel pending reinspect Died(a) Removed(a) Started(b) mark",
	},
	"a hung pod waits, and the wait doubles": {
		"list a=running; inspect; hang; list a=running; retry; wait 1s; retry; hang; list a=running; wait 1s; retry; wait 1s; retry; ok",
		"pending inspect soon mark pending mark none retry soon pending mark none retry Started(a)",
	},
	"a retry inspects what a later answer shows": {
		"list a=running; inspect; hang; wait 1s; retry; list a=running; retry; ok",
		"pending inspect soon mark none pending mark retry Started(a)",
	},
	"a request ends the wait": {
		"list a=running; inspect; hang; list a=running; wait 1s; retry; hang; list a=running; request; retry; ok",
		"pending inspect soon mark pending mark retry soon pending mark retry Started(a)",
	},
	"a request starts an inspection that hangs again": {
		"list a=running; inspect; wait 2s; request; list a=running; hang; retry; ok",
		"pending inspect end-after-1s pending soon mark retry Started(a)",
	},
	"a request starts one inspection at once, and not the next": {
		"list a=running; inspect; wait 2s; request; list a=running; hang; retry; hang; list a=running; wait 1s; retry; wait 1s; retry",
		"pending inspect end-after-1s pending soon mark retry soon pending mark none retry",
	},
	"an event ends the wait, and no inspection": {
		"list a=running; inspect; wait 2s; hint; hang; list a=running; hint; retry; ok", "pending inspect soon mark pending mark retry Started(a)",
	},
	"an event starts no later inspection at once": {
		"list a=running; inspect; wait 2s; hint; hang; list a=running; retry; wait 1s; retry", "pending inspect soon mark pending mark none retry",
	},
	"a request inspects no pod that has not changed": {"list a=running; inspect; ok; request; list a=running; inspect", "pending inspect Started(a) mark covered mark none"},
	"a reinspection while the pod waits":             {"list a=running; reinspect; inspect; ok", "pending soon reinspect Started(a) mark"},
	"a request waits twice as long for an inspection whose pod hung before": {
		"list a=running; inspect; hang; list a=running; request; retry; wait 1s; request; request", "pending inspect soon mark pending mark retry end-after-2s",
	},
	"requests cut at most once a relist period": {
		"list a=running; inspect; wait 2s; request; request; wait 1s; request", "pending inspect end-after-1s end-after-1s",
	},
	"nobody waits for an inspection that hangs": {"list a=running; inspect; hangs; list a=running", "pending inspect mark pending mark"},
	"an inspection that fails late waits for a period, each time": {
		"list a=running; inspect; late; list a=running; wait 1s; retry; late; list a=running; wait 1s; retry; ok",
		"pending inspect soon mark pending mark retry soon pending mark retry Started(a)",
	},
	"a hang after a late failure waits as any second one": {
		"list a=running; inspect; late; list a=running; wait 1s; retry; hang; list a=running; wait 1s; retry; wait 1s; retry",
		"pending inspect soon mark pending mark retry soon pending mark none retry",
	},
	"a late failure after hangs waits for a period": {
		"list a=running; inspect; hang; list a=running; wait 1s; retry; hang; list a=running; wait 2s; retry; late; list a=running; wait 1s; retry",
		"pending inspect soon mark pending mark retry soon pending mark retry soon pending mark retry",
	},
	"a status that contradicts its list is asked for again, from the next answer on": {
		"list a=running; inspect; contradicts; wait 1s; retry; list a=running; retry; ok; list a=running; wait 1m; retry",
		"pending inspect Started(a) mark none covered mark retry covered mark none",
	},
	"a container that only events have shown is told": {
		"list -; event a=running; event a=removed; list -; left", "covered mark pending gone Started(a) Died(a) Removed(a) mark",
	},
	"a sandbox that only events have shown": {
		"list -; event /s=running; event /s=removed; list -; left", "covered mark pending gone Started(/s) Died(/s) Removed(/s) mark",
	},
	"a list that began before the event says nothing about its container": {
		"list -; all< -; event a=running; all>; list a=running; inspect; ok", "covered mark covered mark pending inspect Started(a) mark",
	},
	"late events of a container that was told": {
		"list a=running; inspect; ok; list -; left; event a=running; event a=removed; list -",
		"pending inspect Started(a) mark pending gone Died(a) Removed(a) mark covered mark",
	},
	"the stream breaks, and is back before a list": {
		"list -; down; list -; up; event a=running; list -; left", "covered mark covered mark pending gone Started(a) Died(a) Removed(a) mark",
	},
	"a container that only the event of its end has shown": {
		"list -; event a=ended; list -; left", "covered mark pending gone Started(a) Died(a) Removed(a) mark",
	},
	"one that has not started, of which nothing is told": {"list -; event a=unstarted; list -", "covered mark covered mark"},
	"events before the first list":                       {"event a=running; list -", "covered mark"},
	"events before a list with the stream up":            {"down; list -; event a=running; list -", "covered mark covered mark"},
	"a start that fails has the pod listed": {
		"list /s=running; inspect; ok; event a=created; wait 1s; list a=created /s=running; inspect; ok; wait 1s; list a=exited /s=running; inspect; ok; wait 4s; wait 10s",
		"pending inspect Started(/s) mark relist pending inspect Created(a) mark relist pending inspect Ran(a) Died(a) mark",
	},
	"a start that is announced has it listed by its event": {
		"list /s=running; inspect; ok; event a=created; event a=running; wait 10s", "pending inspect Started(/s) mark",
	},
	"a created container that a list lacks is gone": {
		"list /s=running; inspect; ok; event a=created; wait 1s; list /s=running; wait 2s; wait 10s", "pending inspect Started(/s) mark relist covered mark",
	},
	"of many waits the shortest counts, also later": {
		"list a=exited b=created c=created d=created e=created /s=running; inspect; ok; event b=created; event c=created; event d=created; event e=created; event a=removed; wait 300ms; wait 600ms",
		"pending inspect Ran(a) Died(a) Created(b) Created(c) Created(d) Created(e) Started(/s) mark relist relist",
	},
	"of two waits the shorter counts": {
		"list a=exited b=created /s=running; inspect; ok; event b=created; event a=removed; wait 300ms",
		"pending inspect Ran(a) Died(a) Created(b) Started(/s) mark relist",
	},
	"in any order": {
		"list a=exited b=created /s=running; inspect; ok; event a=removed; event b=created; wait 300ms",
		"pending inspect Ran(a) Died(a) Created(b) Started(/s) mark relist",
	},
	"a created container of a pod that no list shows": {"list -; event a=created; wait 1s; wait 2s", "covered mark relist"},
	"a removal stands until a list lacks the container": {
		"list a=exited b=running /s=running; inspect; ok; event a=removed; list a=exited b=running /s=running; wait 300ms; list a=exited b=running /s=running; wait 300ms; wait 300ms; list b=running /s=running; inspect; ok; wait 2s; wait 10s",
		"pending inspect Ran(a) Died(a) Started(b) Started(/s) mark covered mark relist covered mark relist pending inspect Removed(a) mark",
	},
	"a pod whose containers are gone is listed each two seconds": {
		"list a=running /s=running; inspect; ok; list /s=running; inspect; ok; wait 1s; wait 1s; wait 1s; wait 1s; list -; left; wait 1s; wait 10s",
		"pending inspect Started(a) Started(/s) mark pending inspect Died(a) Removed(a) mark relist relist pending gone Died(/s) Removed(/s) mark",
	},
	"not before that": {
		"list a=running /s=running; inspect; ok; list /s=running; inspect; ok; wait 1900ms", "pending inspect Started(a) Started(/s) mark pending inspect Died(a) Removed(a) mark",
	},
	"unless it gets others": {
		"list a=running /s=running; inspect; ok; list /s=running; inspect; ok; list b=running /s=running; inspect; ok; wait 2s; wait 10s",
		"pending inspect Started(a) Started(/s) mark pending inspect Died(a) Removed(a) mark pending inspect Started(b) mark",
	},
	"a pod that has never had one is not": {
		"list /s=running; inspect; ok; list /s=running /t=exited; inspect; ok; wait 2s", "pending inspect Started(/s) mark pending inspect Died(/t) mark",
	},
	"a pod whose sandbox is not ready, but not before a second": {
		"list a=running /s=running; inspect; ok; list a=exited /s=exited; inspect; ok; wait 900ms", "pending inspect Started(a) Started(/s) mark pending inspect Died(a) Died(/s) mark",
	},
	"a pod whose sandbox is not ready, too": {
		"list a=running /s=running; inspect; ok; list a=exited /s=exited; inspect; ok; wait 1s", "pending inspect Started(a) Started(/s) mark pending inspect Died(a) Died(/s) mark relist",
	},
	"not while the stream is down": {
		"list a=running /s=running; inspect; ok; down; list a=running /s=running; list a=exited /s=exited; inspect; ok; wait 1s",
		"pending inspect Started(a) Started(/s) mark covered mark pending inspect Died(a) Died(/s) mark",
	},
	"a pod that never had a container, too": {
		"list /s=running; inspect; ok; list /s=exited; inspect; ok; wait 1s", "pending inspect Started(/s) mark pending inspect Died(/s) mark relist",
	},
	"a pod that ended before its first list, too": {
		"list -; list a=exited /s=exited; inspect; ok; wait 1s", "covered mark pending inspect Ran(a) Died(a) Died(/s) mark relist",
	},
	"a pod that ended before the start is not": {
		"list a=exited /s=exited; inspect; ok; wait 1s", "pending inspect Ran(a) Died(a) Died(/s) mark",
	},
	"one that ended before is not": {
		"list a=running b=exited /s=exited; inspect; ok; list a=exited b=exited /s=exited; inspect; ok; wait 1s; wait 1s", "pending inspect Started(a) Ran(b) Died(b) Died(/s) mark pending inspect Died(a) mark",
	},
	"unless the runtime announces its end": {
		"list a=running /s=running; inspect; ok; event /t=removed; list a=exited /s=exited; inspect; ok; wait 1s", "pending inspect Started(a) Started(/s) mark pending inspect Died(a) Died(/s) mark",
	},
	"or the creation of one": {
		"list a=running /s=running; inspect; ok; event /t=created; list a=exited /s=exited; inspect; ok; wait 1s", "pending inspect Started(a) Started(/s) mark pending inspect Died(a) Died(/s) mark relist",
	},
	"the start of one does not say that": {
		"list a=running /s=running; inspect; ok; event /s=running; list a=exited /s=exited; inspect; ok; wait 1s", "pending inspect Started(a) Started(/s) mark pending inspect Died(a) Died(/s) mark relist",
	},
	"nor does the removal of a container": {
		"list a=running b=running /s=running; inspect; ok; event b=removed; list a=running /s=running; inspect; ok; list a=exited /s=exited; inspect; ok; wait 1s",
		"pending inspect Started(a) Started(b) Started(/s) mark pending inspect Died(b) Removed(b) mark pending inspect Died(a) Died(/s) mark relist",
	},
	"what waits is another container in the next list": {"list a=running; list b=running; inspect; ok", "pending pending inspect Started(a) Died(a) Removed(a) Started(b) mark"},
	"what waits ends in the next list":                 {"list a=running; list a=exited; inspect; ok", "pending pending inspect Ran(a) Died(a) mark"},
	"what waits has another sandbox in the next list":  {"list a=running /s=running; list a=running /s=exited; inspect; ok", "pending pending inspect Started(a) Died(/s) mark"},
	"a new pod has no containers yet":                  {"list /s=running; inspect; ok; wait 1s", "pending inspect Started(/s) mark"},
	"a sandbox that is first seen dead": {
		"list -; event /s=running; list /s=exited; inspect; ok", "covered mark pending inspect Started(/s) Died(/s) mark",
	},
}

func TestScripts(t *testing.T) {
	for name, tc := range scripts {
		t.Run(name, func(t *testing.T) {
			s := play(t, tc.script)
			if got := strings.Join(s.got, " "); got != tc.want {
				t.Errorf("%s:\n\tgot  %s\n\twant %s", tc.script, got, tc.want)
			}
		})
	}
}

// The kubelet reports what differs between two lists whose changes were inspected.
func TestScriptsOfTheKubelet(t *testing.T) {
	for script, want := range map[string]string{
		"list a=running; inspect; list a=running b=exited; list a=running c=running; ok; inspect; ok":  "pending inspect pending pending Started(a) mark inspect Died(b) Removed(b) Started(c) mark",
		"list a=running; inspect; list a=running b=running; list a=running c=running; ok; inspect; ok": "pending inspect pending pending Started(a) mark inspect Started(b) Died(b) Removed(b) Started(c) mark",
		"list a=running; inspect; fail; list b=running; inspect; ok":                                   "pending inspect soon mark pending inspect Started(b) mark",
		"list a=running; inspect; contradicts; wait 1s; list a=running; retry":                         "pending inspect Started(a) mark covered mark none",
		"list a=running; inspect; ok; list a=unknown; inspect; ok; list a=running; inspect; ok":        "pending inspect Started(a) mark pending inspect Changed(a) mark pending inspect Started(a) mark",
		"list a=created; inspect; ok; list a=exited /s=exited; inspect; ok":                            "pending inspect Created(a) mark pending inspect Died(a) Died(/s) mark",
		"list a=exited; inspect; ok; list a=running; inspect; ok; list a=exited; inspect; ok":          "pending inspect Died(a) mark pending inspect Started(a) mark pending inspect Died(a) mark",
	} {
		if got := strings.Join(playAs(t, script, true).got, " "); got != want {
			t.Errorf("%s:\n\tgot  %s\n\twant %s", script, got, want)
		}
	}
}

// However many containers events have announced since the start, also late, the next one is reported, each one
// once, and no memory is kept for those before.
func TestLivesOfALongTime(t *testing.T) {
	steps := []string{"list a=running z0=created; inspect; ok"}
	for n := range maxHeard {
		steps = append(steps, fmt.Sprintf("event x%d=running; list a=running y%[1]d=running z%d=created; inspect; event z%[1]d=running; ok; event y%[3]d=running", n, n+1, max(0, n-500)))
	}
	s := play(t, strings.Join(append(steps, "event last=running; list a=running; inspect"), ";"))
	s.tell(s.inFlight)
	want := fmt.Sprintf("Died(y%d) Removed(y%[1]d) Ran(z%d) Died(z%[2]d) Removed(z%[2]d) Started(last) Died(last) Removed(last)", maxHeard-1, maxHeard)
	if got := s.got[len(s.got)-1]; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := strings.Count(strings.Join(s.got, " "), "Started(y"); n != maxHeard {
		t.Errorf("%d starts of %d containers are reported", n, maxHeard)
	}
	l := &s.m.lives
	if told, kept := len(l.told), len(l.removed.last)+len(l.removed.before); told > 2 || kept > maxRemoved || s.lost > 0 {
		t.Errorf("%d reported steps of two containers and %d removed containers are kept, %d were skipped", told, kept, s.lost)
	}
}

// An event that names no pod, or no container, lets nothing be expected.
func TestEventsOfNobody(t *testing.T) {
	m := newMachine(Options{})
	for _, h := range []pleg.Hint{{Container: "c", State: pleg.StateCreated}, {UID: "u", State: pleg.StateCreated}, {Container: "c", Removed: true}, {UID: "u", Removed: true}} {
		if m.step(Announcement{Hint: h}, time.Unix(1000, 0)); len(m.expectations.waits) > 0 {
			t.Errorf("%+v: something is expected", h)
		}
	}
}

// A change that the lists never show causes a few lists of the pod, not lists forever.
func TestExpectationsEnd(t *testing.T) {
	for script, want := range map[string]int{ // lists of the pod
		"list a=created /s=running; inspect; ok; event a=created":                               13,
		"list a=exited /s=running; inspect; ok; event a=removed":                                6,
		"list a=running /s=running; inspect; ok; list a=exited /s=exited; inspect; ok":          13,
		"list a=running /s=running; inspect; ok; list /s=running; inspect; ok; event a=removed": 12,
	} {
		s := play(t, script)
		for range 3600 {
			s.play(t, "wait 1s")
		}
		got := 0
		for _, word := range s.got {
			if word == "relist" {
				got++
			}
		}
		if waits := len(s.m.expectations.waits); got != want || waits > 0 {
			t.Errorf("%s: the pod was listed %d times, want %d; %d changes are still expected", script, got, want, waits)
		}
	}
}

// The events of a container that only CRI events have shown use the names in those CRI events.
func TestLifeHasTheNamesOfItsEvent(t *testing.T) {
	s := play(t, "list a=running; inspect; ok")
	h := hintOf("b=running")
	h.Attempt = 7
	s.step(Announcement{h, s.ticks.Next()})
	s.play(t, "list a=running")
	s.play(t, "inspect")
	if got, want := plegtest.Words(s.inFlight.Events...), "Started(b) Died(b) Removed(b)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, ev := range s.inFlight.Events {
		if ev.PodUID != explorePod || ev.ContainerName != "b" || ev.Attempt != 7 || ev.PodName != "name-p" || ev.PodNamespace != "ns" {
			t.Errorf("%+v has other names than its CRI event", ev)
		}
	}
}

// Only an event that shows that its container has run, and names it, begins a life.
func TestAnnouncementsOfAStart(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(h *pleg.Hint)
		want   bool
	}{
		"a start":                {func(*pleg.Hint) {}, true},
		"of no pod":              {func(h *pleg.Hint) { h.UID = "" }, false},
		"of no container":        {func(h *pleg.Hint) { h.Container = "" }, false},
		"without a name":         {func(h *pleg.Hint) { h.Name = "" }, false},
		"an end":                 {func(h *pleg.Hint) { h.State = pleg.StateExited }, false},
		"an end without a start": {func(h *pleg.Hint) { h.State, h.Status = pleg.StateExited, &pleg.ContainerStatus{} }, false},
		"an end, with its start": {func(h *pleg.Hint) {
			h.State, h.Status = pleg.StateExited, &pleg.ContainerStatus{StartedAt: time.Unix(1, 0)}
		}, true},
	} {
		h := hintOf("a=running")
		if tc.change(&h); (Announcement{Hint: h}).started() != tc.want {
			t.Errorf("%s shows that a container has run: %v, want %v", name, !tc.want, tc.want)
		}
	}
}

// A flood of events and answers takes a bounded memory. Skipped events are counted.
func TestFloodIsBounded(t *testing.T) {
	const flood = maxHeard + 100
	s := play(t, "list a=running; inspect; ok")
	early := newMachine(Options{})
	for n := range flood {
		s.play(t, fmt.Sprintf("event x%d=running", n))
		s.play(t, fmt.Sprintf("event y%d=removed", n))
		early.step(&observation{stage.Observation{UID: pleg.PodUID(fmt.Sprint(n))}}, s.now)
	}
	if len(early.early) > maxHeard {
		t.Errorf("%d answers wait for the first list, want at most %d", len(early.early), maxHeard)
	}
	if waits := len(s.m.expectations.waits); waits > maxWaits {
		t.Errorf("%d changes are expected, want at most %d", waits, maxWaits)
	}
	if s.lost != flood-maxHeard {
		t.Errorf("%d containers were skipped, want %d", s.lost, flood-maxHeard)
	}
	if s.play(t, "list a=running"); s.lost != flood-64 {
		t.Errorf("%d containers were skipped, want %d: 64 of a pod wait to be reported", s.lost, flood-64)
	}
}

// The counts of a step are added to the counters.
func TestCountsOfAStep(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m, err := newMetrics(instrument.Registry{Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m.add(&effects{foundByAll: 1, foundByOne: 2, lost: 3})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{"pleg_changes_total all": 2, "pleg_changes_total pod": 4, "pleg_skipped_events_total": 6} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

// A pod whose status contradicts its list is inspected again only while no pod that changed waits.
func TestContradictionWaitsForChangedPods(t *testing.T) {
	s := play(t, "list a=running; inspect; contradicts; wait 1s")
	asked := stage.Asked{Began: s.ticks.Next(), Answered: s.ticks.Next(), At: s.now}
	s.step(&listing{stage.Listing{Asked: asked, Pods: []*pleg.Pod{podOf("a=running"), plegtest.Pod("q", "b=running")}}})
	changed, again, _ := s.m.next(s.now)
	if changed == nil || changed.UID != "q" || again != nil {
		t.Fatalf("offered are %+v and %+v, want the pod that changed", changed, again)
	}
	s.step(accepted{changed})
	if _, again, _ = s.m.next(s.now); again == nil || again.UID != explorePod {
		t.Errorf("%+v is offered, want the pod that differs", again)
	}
}

// runLists runs a differ beside a single inspector, the test, until the test ends. It returns a function that gives the
// differ a list of all pods. The test closes ends.
func runLists(t *testing.T, ends <-chan stage.Settled, out Outputs) (list func(...*pleg.Pod)) {
	t.Helper()
	d, err := New(Options{
		Cache: podcache.New(), RelistPeriod: time.Second, MaxQuarantine: time.Minute, Inspectors: 1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	listings, observations, ended := make(chan stage.Listing), make(chan stage.Observation), make(chan error)
	go func() { ended <- d.Run(listings, observations, ends, out) }()
	t.Cleanup(func() {
		close(listings)
		close(observations)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var ticks stage.Ticks
	return func(pods ...*pleg.Pod) {
		listings <- stage.Listing{Asked: stage.Asked{Began: ticks.Next(), Answered: ticks.Next(), At: time.Now()}, Pods: pods}
	}
}

// A cancellation that the inspector has not accepted stands until its inspection ends: it must not meet the next
// one.
func TestCancelEndsWithItsInspection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends, inspect, cancel := make(chan stage.Settled), make(chan stage.Change), make(chan stage.Cancel)
		list := runLists(t, ends, Outputs{Inspect: inspect, Cancel: cancel, Marks: make(chan stage.Mark)})
		list(podOf("a=running"))
		<-inspect
		list()
		ends <- stage.Settled{UID: explorePod, How: stage.Hangs} // it has not ended
		synctest.Wait()
		select {
		case <-cancel:
		default:
			t.Error("an inspection that hangs is not cancelled")
		}
		list()
		ends <- stage.Settled{UID: explorePod, How: stage.Committed}
		synctest.Wait()
		select {
		case c := <-cancel:
			t.Errorf("%+v comes after the end of the inspection", c)
		default:
		}
		close(ends)
	})
}

// A change that overtakes the queue leaves the others in it.
func TestLateChangeIsTheAcceptedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends, inspect, late := make(chan stage.Settled), make(chan stage.Change), make(chan stage.Change)
		list := runLists(t, ends, Outputs{Inspect: inspect, Late: late, Marks: make(chan stage.Mark)})
		first, last := podOf("a=running"), podOf("b=running")
		last.UID = "last"
		list(first, last)
		if got := []pleg.PodUID{(<-late).UID, (<-inspect).UID}; !slices.Equal(got, []pleg.PodUID{"last", explorePod}) {
			t.Errorf("the inspector gets %v, want each pod once", got)
		}
		synctest.Wait()
		select {
		case c := <-inspect:
			t.Errorf("%s is inspected again", c.UID)
		default:
		}
		close(ends)
	})
}

// outside is what the differ does to the others.
type outside struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *outside) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// take waits until the differ waits, and returns what it did since the last call.
func (o *outside) take() string {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.text.Reset()
	return o.text.String()
}

func (o *outside) Touch(uid pleg.PodUID, at time.Time) { fmt.Fprintln(o, "touch", uid, at.Unix()) }

func (o *outside) Observe(at time.Time, pending []*pleg.Pod) {
	var uids []string
	for _, pod := range pending {
		uids = append(uids, string(pod.UID))
	}
	slices.Sort(uids)
	fmt.Fprintln(o, "observe", at.Unix(), uids)
}

// Each effect reaches its receiver: the cache, the lists, the log, the metrics, and who asks for the quarantine.
// A removed container that is listed as before has its pod listed again soon, without another input.
func TestEffectsReachTheirReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out outside
		registry := prometheus.NewPedanticRegistry()
		d, err := New(Options{
			Cache: &out, RelistPeriod: time.Second, MaxQuarantine: time.Minute, Inspectors: 8, Metrics: instrument.Registry{Registerer: registry},
			RelistSoon: func() { fmt.Fprintln(&out, "list all") },
			RelistPod: func(uid pleg.PodUID) {
				fmt.Fprintln(&out, "list", uid, "after", time.Duration(time.Now().Nanosecond()))
			},
			Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}})),
		})
		if err != nil {
			t.Fatal(err)
		}
		if d.Quarantined() == nil || len(d.Quarantined()) > 0 {
			t.Errorf("quarantined at first: %#v, want an empty list", d.Quarantined())
		}
		listings, observations, ends := make(chan stage.Listing), make(chan stage.Observation), make(chan stage.Settled)
		inspect, retry, marks, ended := make(chan stage.Change), make(chan stage.Change), make(chan stage.Mark, 8), make(chan error)
		go func() {
			ended <- d.Run(listings, observations, ends, Outputs{Inspect: inspect, Retry: retry, Marks: marks})
		}()
		var ticks stage.Ticks
		start := time.Now().Unix()
		asked := func() stage.Asked {
			synctest.Wait()
			return stage.Asked{Began: ticks.Next(), Answered: ticks.Next(), At: time.Now()}
		}
		list := func(pods ...*pleg.Pod) { listings <- stage.Listing{Asked: asked(), Pods: pods, StreamUp: true} }
		does := func(what string, queue, quarantined float64, want ...string) {
			t.Helper()
			if got := out.take(); got != strings.Join(append(want, ""), "\n") {
				t.Errorf("%s: the differ did\n%swant\n%s", what, got, strings.Join(want, "\n"))
			}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if want, ok := map[string]float64{"pleg_differ_queue_length": queue, "pleg_quarantined_pods": quarantined}[f.GetName()]; ok && f.GetMetric()[0].GetGauge().GetValue() != want {
					t.Errorf("%s: %s is %v, want %v", what, f.GetName(), f.GetMetric()[0].GetGauge().GetValue(), want)
				}
			}
			if got := len(d.Quarantined()); got != int(quarantined) {
				t.Errorf("%s: %d pods are in quarantine, want %v", what, got, quarantined)
			}
		}
		other := plegtest.Pod("q", "b=running")
		list(podOf("a=running"), other)
		does("two pods are new", 2, 0, fmt.Sprintf("observe %d [p q]", start))
		for _, uid := range []pleg.PodUID{explorePod, "q"} {
			if c := <-inspect; c.UID != uid {
				t.Errorf("the inspector gets %s, want %s", c.UID, uid)
			}
			ends <- stage.Settled{UID: uid, How: stage.Committed}
		}
		does("they are inspected", 0, 0)
		if m := <-marks; m.Current.Unix() != start {
			t.Errorf("the list is marked as of %v", m.Current)
		}
		d.Announce(Announcement{hintOf("a=removed"), ticks.Next()})
		ofOther := hintOf("b=removed")
		ofOther.UID = "q"
		d.Announce(Announcement{ofOther, ticks.Next()})
		time.Sleep(goWait)
		lists := strings.Fields(out.take())
		if slices.Sort(lists); strings.Join(lists, " ") != "300ms 300ms after after list list p q" {
			t.Errorf("containers of two pods that are gone are still listed: the differ did %v", lists)
		}
		time.Sleep(time.Second - goWait)
		out.take() // it is listed again
		observations <- stage.Observation{Asked: asked(), UID: explorePod, Pod: podOf("a=running")}
		does("nothing has changed", 0, 0, fmt.Sprintf("touch p %d", start+1))
		list(podOf("a=exited"), other)
		does("one pod has changed", 1, 0, fmt.Sprintf("observe %d [p]", start+1))
		<-inspect
		time.Sleep(2 * time.Second)
		out.take()
		ends <- stage.Settled{UID: explorePod, How: stage.FailedHung, Took: 2 * time.Second, Err: errors.New("no answer")}
		does("the inspection hung", 0, 1,
			`level=WARN msg="pod quarantined, inspection hung" stage=differ podUID=p pod=ns/name-p age=2s failedLate=false nextTry=1s err="no answer"`, "list all")
		list(podOf("a=exited"), other)
		out.take()
		if c := <-retry; time.Now().Unix() != start+4 || !c.Retry || c.Timeout != firstDeadline {
			t.Errorf("the retry is %+v at second %d", c, time.Now().Unix()-start)
		}
		ends <- stage.Settled{UID: explorePod, How: stage.Committed}
		if got, want := out.take(), `level=INFO msg="pod released from quarantine" stage=differ podUID=p pod=ns/name-p gone=false after=3s hung=1`; !strings.Contains(got, want) {
			t.Errorf("the differ did\n%swant\n%s", got, want)
		}
		does("the retry succeeded", 0, 0)
		d.RequestReinspect(explorePod)
		d.RequestReinspect("q")
		does("two requests come", 0, 0, "list all", "list all")
		close(listings)
		close(observations)
		for range marks { // until it is closed
		}
		if _, open := <-inspect; open {
			t.Error("a change comes after the end")
		}
		close(ends)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// announcing is a cache that calls a function once, when a listing is applied.
type announcing struct {
	Cache
	announce func()
}

func (*announcing) Touch(pleg.PodUID, time.Time) {}

func (c *announcing) Observe(time.Time, []*pleg.Pod) {
	if announce := c.announce; announce != nil {
		c.announce = nil
		announce()
	}
}

// A list of all pods, or of one, that comes after an event finds it, although the loop may take either first.
func TestEventsComeBeforeALaterList(t *testing.T) {
	for n := range 40 {
		synctest.Test(t, func(t *testing.T) {
			cache := new(announcing)
			d, err := New(Options{Cache: cache, RelistPeriod: time.Second, Inspectors: 1, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			var ticks stage.Ticks
			empty := func() stage.Listing {
				return stage.Listing{Asked: stage.Asked{Began: ticks.Next(), Answered: ticks.Next(), At: time.Now()}, StreamUp: true}
			}
			listings, observations, ends := make(chan stage.Listing, 1), make(chan stage.Observation, 1), make(chan stage.Settled)
			gone, ended := make(chan stage.Change, 1), make(chan error)
			cache.announce = func() {
				d.Announce(Announcement{hintOf("a=running"), ticks.Next()})
				d.Announce(Announcement{hintOf("b=running"), ticks.Next()})
				if n%2 > 0 {
					observations <- stage.Observation{Asked: empty().Asked, UID: explorePod}
					return
				}
				listings <- empty()
			}
			listings <- empty()
			go func() {
				ended <- d.Run(listings, observations, ends, Outputs{Inspect: make(chan stage.Change), Gone: gone, Marks: make(chan stage.Mark)})
			}()
			synctest.Wait()
			select {
			case c := <-gone:
				if got := plegtest.Words(c.Events...); got != "Started(a) Died(a) Removed(a) Started(b) Died(b) Removed(b)" {
					t.Errorf("got %s", got)
				}
			default:
				t.Error("the list has overtaken the event")
			}
			close(listings)
			close(observations)
			close(ends)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func play(t *testing.T, steps string) *script {
	t.Helper()
	return playAs(t, steps, false)
}

func playAs(t *testing.T, steps string, kubelet bool) *script {
	t.Helper()
	s := &script{now: time.Unix(1000, 0)}
	s.m = newMachine(Options{RelistPeriod: time.Second, MaxQuarantine: time.Minute, Inspectors: 8, KubeletEvents: kubelet})
	for step := range strings.SplitSeq(steps, ";") {
		s.play(t, strings.TrimSpace(step))
	}
	return s
}

type script struct {
	m        machine
	ticks    stage.Ticks
	now      time.Time
	down     bool
	all, one *scripted
	inFlight *stage.Change
	leaving  stage.Change
	got      []string

	foundByAll, foundByOne, lost int
}

type scripted struct {
	asked stage.Asked
	pod   *pleg.Pod
}

func (s *script) play(t *testing.T, step string) {
	t.Helper()
	what, words, _ := strings.Cut(step, " ")
	s.now = s.now.Add(time.Millisecond)
	switch what {
	case "list":
		s.answerAll(s.begin(words))
	case "all<":
		s.all = s.begin(words)
	case "all>":
		s.answerAll(s.all)
	case "one<":
		s.one = s.begin(words)
	case "one>":
		s.one.asked.Answered = s.ticks.Next()
		s.step(&observation{stage.Observation{Asked: s.one.asked, UID: explorePod, Pod: s.one.pod}})
	case "event":
		s.step(Announcement{hintOf(words), s.ticks.Next()})
	case "down", "up":
		s.down = what == "down"
	case "inspect", "retry":
		s.accept(what == "retry")
	case "ok":
		s.tell(s.inFlight)
		s.settle(stage.Committed, "")
	case "contradicts":
		s.tell(s.inFlight)
		s.settle(stage.Contradicted, "")
	case "left":
		s.tell(&s.leaving)
		s.settle(stage.Committed, "")
	case "fail":
		s.settle(stage.Failed, "failed")
	case "hang":
		s.settle(stage.FailedHung, "hung")
	case "late":
		s.settle(stage.FailedLate, "late")
	case "superseded":
		s.settle(stage.Superseded, "gone")
	case "hangs":
		s.settle(stage.Hangs, "")
	case "reinspect", "request", "hint":
		s.step(request{explorePod, what != "hint", what == "reinspect"})
	case "wait":
		d, err := time.ParseDuration(words)
		if err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(d)
		s.step(elapsed{})
	default:
		t.Fatalf("no such step: %q", step)
	}
}

func (s *script) begin(words string) *scripted {
	a := &scripted{asked: stage.Asked{Began: s.ticks.Next(), At: s.now}}
	if words != "-" {
		a.pod = podOf(words)
	}
	return a
}

func (s *script) answerAll(a *scripted) {
	a.asked.Answered = s.ticks.Next()
	l := stage.Listing{Asked: a.asked, StreamUp: !s.down}
	if a.pod != nil {
		l.Pods = []*pleg.Pod{a.pod}
	}
	s.step(&listing{l})
}

func (s *script) accept(retry bool) {
	c, again, _ := s.m.next(s.now)
	if retry {
		c = again
	}
	if c == nil {
		s.got = append(s.got, "none")
		return
	}
	word := "inspect"
	if c.Retry {
		word = "retry"
	} else if c.Reinspect {
		word = "reinspect"
	}
	s.got = append(s.got, word)
	s.inFlight = c
	s.check(c)
	s.step(accepted{c})
	if got := s.m.records[explorePod].sent.timeout; got != c.Timeout {
		s.got = append(s.got, "timeout "+got.String())
	}
}

// check requires the newest answer and its time in a change, and the name of the pod.
func (s *script) check(c *stage.Change) {
	rec := s.m.records[explorePod]
	late := func(ev pleg.Event) bool {
		return !ev.ObservedAt.Equal(rec.asked.At) || ev.PodUID != explorePod || ev.PodName != "name-p"
	}
	if c.UID != explorePod || c.Pod != rec.current || !c.At.Equal(rec.asked.At) || c.Last == nil || c.Pod != nil && c.Last != c.Pod || c.Last.Name != "name-p" || slices.ContainsFunc(c.Events, late) {
		s.got = append(s.got, fmt.Sprintf("wrong: %+v", c))
	}
}

func (s *script) tell(c *stage.Change) {
	if words := plegtest.Words(c.Events...); words != "" {
		s.got = append(s.got, words)
	}
}

func (s *script) settle(how stage.Ending, err string) {
	end := stage.Settled{UID: explorePod, How: how}
	if err != "" {
		end.Err = errors.New(err)
	}
	s.step(settle{end})
}

func (s *script) step(in input) {
	do := s.m.step(in, s.now)
	note := func(on bool, word string) {
		if on {
			s.got = append(s.got, word)
		}
	}
	s.foundByAll, s.foundByOne, s.lost = s.foundByAll+do.foundByAll, s.foundByOne+do.foundByOne, s.lost+do.lost
	for _, touched := range do.touch {
		note(touched == touch{explorePod, s.m.records[explorePod].asked.At}, "touch")
	}
	for _, uid := range do.relist {
		note(uid == explorePod, "relist")
	}
	note(do.relistSoon, "soon")
	for _, c := range do.cancel {
		note(c == stage.Cancel{UID: explorePod, Gone: true}, "cancel")
		note(!c.Gone && c.UID == explorePod, "end-after-"+c.After.String())
	}
	if !do.observe.IsZero() {
		note(do.observe.Equal(s.m.absent.At) && len(do.pending) > 0, "pending")
		note(do.observe.Equal(s.m.absent.At) && len(do.pending) == 0, "covered")
	}
	if len(do.leaving) > 0 {
		s.leaving = do.leaving[0]
		s.check(&s.leaving)
		s.got = append(s.got, "gone")
	}
	note(!do.mark.Current.IsZero(), "mark")
	for _, rec := range s.m.queue {
		note(rec.phase != queued, "waits for no slot")
	}
}

// hintOf returns a CRI event in words such as "a=running" or "/s=removed".
func hintOf(words string) pleg.Hint {
	id, state, _ := strings.Cut(words, "=")
	name, sandbox := strings.CutPrefix(id, "/")
	h := pleg.Hint{UID: explorePod, Container: pleg.ContainerID(name), Name: name, PodName: "name-p", PodNamespace: "ns", State: pleg.StateRunning}
	if sandbox {
		h.Sandbox = h.Container
	}
	switch state {
	case "created":
		h.State = pleg.StateCreated
	case "exited", "removed":
		h.State, h.Removed = pleg.StateExited, state == "removed"
	case "ended", "unstarted":
		h.State, h.Status = pleg.StateExited, &pleg.ContainerStatus{ID: h.Container, State: pleg.StateExited}
		if state == "ended" {
			h.Status.StartedAt = time.Unix(1, 0)
		}
	}
	return h
}

// With many hung pods, all retries except one get less time, so that all pods are tried within the
// longest wait.
func TestRetriesShareTheLongestWait(t *testing.T) {
	now := time.Unix(0, 0)
	for _, pods := range []int{1, 4, 40} {
		q := newQuarantines(time.Second, 5*time.Minute, 8)
		for n := range pods {
			q.add(&record{uid: pleg.PodUID(fmt.Sprint(n)), named: &pleg.Pod{}}, stage.Settled{How: stage.FailedHung}, now)
		}
		if got, want := q.timeout(q.pods[0], now), 10*time.Second; got != want {
			t.Errorf("%d pods: the first retry has %v, want %v", pods, got, want)
		}
		q.pods[0].Hung = 5
		if got, want := q.timeout(q.pods[0], now), 160*time.Second; got != want {
			t.Errorf("%d pods: the fifth retry has %v, want %v", pods, got, want)
		}
		q.pods[0].Hung = 40 // hours later
		if got, want := q.timeout(q.pods[0], now), 640*time.Second; got != want {
			t.Errorf("%d pods: the fortieth retry has %v, want %v", pods, got, want)
		}
		q.pods[0].Hung = 5
		last := q.pods[pods-1].rec
		last.phase, last.sent.timeout = inspecting, 160*time.Second
		want := map[int]time.Duration{1: 160 * time.Second, 4: 112500 * time.Millisecond, 40: 11250 * time.Millisecond}[pods]
		if got := q.timeout(q.pods[0], now); got != want {
			t.Errorf("%d pods: beside a long one the fifth retry has %v, want %v", pods, got, want)
		}
	}
}

// With several slots no retry has less time than others for that reason, and only a long one in flight counts.
func TestLongRetryOfSeveralSlots(t *testing.T) {
	q := newQuarantines(time.Second, 5*time.Minute, 4)
	for _, uid := range []pleg.PodUID{"a", "b", "c", "d"} {
		q.add(&record{uid: uid, named: &pleg.Pod{}}, stage.Settled{How: stage.FailedHung}, time.Unix(0, 0))
	}
	q.pods[0].Hung, q.pods[3].rec.sent.timeout = 5, 160*time.Second
	if got, want := q.timeout(q.pods[0], time.Unix(0, 0)), 160*time.Second; got != want {
		t.Errorf("the fifth retry has %v, want %v", got, want)
	}
}

// With a single slot for retries one of them is long in each longest wait: it has the time that the others leave.
func TestLongRetryOfASingleSlot(t *testing.T) {
	now, longest := time.Unix(0, 0), 5*time.Minute
	for pods, want := range map[int]struct{ long, fair time.Duration }{
		1: {160 * time.Second, 150 * time.Second}, 4: {150 * time.Second, 37500 * time.Millisecond}, 20: {100 * time.Second, 10 * time.Second},
		28: {20 * time.Second, 10 * time.Second}, 29: {160 * time.Second, 10 * time.Second}, // no time is left
	} {
		q := newQuarantines(time.Second, longest, 2)
		for n := range pods {
			q.add(&record{uid: pleg.PodUID(fmt.Sprint(n)), named: &pleg.Pod{}}, stage.Settled{How: stage.FailedHung}, now)
		}
		q.pods[0].Hung = 5
		last := q.pods[pods-1]
		for n, step := range []struct {
			busy    bool
			timeout time.Duration // of the last retry of another pod
			after   time.Duration
			want    time.Duration
		}{
			{false, 0, 0, want.long}, {false, want.fair, 0, want.long}, {true, want.fair + 1, longest, want.fair}, {false, want.fair + 1, longest - 1, want.fair}, {false, want.fair + 1, longest, want.long},
		} {
			last.rec.phase, last.rec.sent.timeout = settled, step.timeout
			if step.busy {
				last.rec.phase = inspecting
			}
			if got := q.timeout(q.pods[0], now.Add(step.after)); got != step.want {
				t.Errorf("%d pods, step %d: the fifth retry has %v, want %v", pods, n, got, step.want)
			}
		}
		q.pods[0].late = true
		if got := q.timeout(q.pods[0], now); got != 0 {
			t.Errorf("%d pods: the retry after a late failure has %v, want the timeout of every inspection", pods, got)
		}
	}
}

// The first pod in line that may be tried is tried. Without an input, the time to look again is the first at which
// that changes.
func TestNextRetry(t *testing.T) {
	now, longest := time.Unix(1000, 0), time.Minute
	type pod struct {
		wait, tried        time.Duration // until its next try, and since its last
		late, urgent, busy bool
		unlisted           bool
	}
	for name, tc := range map[string]struct {
		pods   []pod
		others bool // wait for a slot
		retry  string
		again  time.Duration
	}{
		"none":                                {nil, false, "", 0},
		"two wait":                            {[]pod{{wait: 1}, {wait: 2}}, false, "", 1},
		"one is due":                          {[]pod{{}, {wait: 2}}, false, "0", 0},
		"one is due, and busy":                {[]pod{{busy: true, unlisted: true}, {wait: 2}}, false, "", 2},
		"one is due, and not listed again":    {[]pod{{unlisted: true}, {}}, false, "1", 0},
		"healthy pods wait":                   {[]pod{{tried: 9}, {tried: 8}, {wait: longest}}, true, "", longest - 9},
		"healthy pods wait, the next is near": {[]pod{{tried: 9}, {wait: 2}}, true, "", 2},
		"healthy pods wait, one is urgent":    {[]pod{{tried: 9}, {urgent: true}}, true, "1", 0},
		"healthy pods have waited enough":     {[]pod{{tried: longest - 1}, {tried: longest}}, true, "1", 0},
		"late, and another is busy":           {[]pod{{late: true, tried: 9}, {late: true, busy: true, unlisted: true}}, false, "", longest - 9},
		"late, and one that hung is busy":     {[]pod{{late: true}, {busy: true, unlisted: true}}, false, "0", 0},
		"late and urgent, another is busy":    {[]pod{{late: true, urgent: true, tried: 9}, {late: true, busy: true, unlisted: true}, {}}, false, "2", 0},
		"late, and has waited enough":         {[]pod{{late: true, tried: longest}, {late: true, busy: true, unlisted: true}}, true, "0", 0},
	} {
		q := newQuarantines(time.Second, longest, 8)
		for n, p := range tc.pods {
			rec := &record{uid: pleg.PodUID(fmt.Sprint(n)), urgent: p.urgent, next: &stage.Change{UID: pleg.PodUID(fmt.Sprint(n)), Retry: true}}
			if p.unlisted {
				rec.next = nil
			}
			if p.busy {
				rec.phase = inspecting
			}
			q.pods = append(q.pods, &quarantine{rec: rec, tried: now.Add(-p.tried), late: p.late, Quarantined: pleg.Quarantined{Hung: 2, NextTry: now.Add(p.wait)}})
		}
		c, again := q.next(tc.others, now)
		got := ""
		if c != nil {
			got = string(c.UID)
			if late := tc.pods[c.UID[0]-'0'].late; !c.Retry || (c.Timeout == 0) != late || q.pods[c.UID[0]-'0'].rec.next.Timeout != 0 {
				t.Errorf("%s: the retry is %+v", name, c)
			}
		}
		if got != tc.retry || again.Sub(now) != tc.again && (tc.again != 0 || !again.IsZero()) {
			t.Errorf("%s: the retry is of %q, again after %v, want %q, %v", name, got, again.Sub(now), tc.retry, tc.again)
		}
	}
}

// Pods do not wait for each other: a list is complete although a later one shows a new pod, and a pod of the quarantine
// that is gone frees no other.
func TestPodsBesideEachOther(t *testing.T) {
	m := newMachine(Options{RelistPeriod: time.Second, MaxQuarantine: 4 * time.Hour, Inspectors: 8})
	now := time.Unix(1000, 0)
	var ticks stage.Ticks
	list := func(words string, uids ...pleg.PodUID) effects {
		now = now.Add(time.Second)
		l := stage.Listing{Asked: stage.Asked{Began: ticks.Next(), Answered: ticks.Next(), At: now}}
		for _, uid := range uids {
			l.Pods = append(l.Pods, plegtest.Pod(uid, string(uid)+words))
		}
		return m.step(&listing{l}, now)
	}
	inspect := func(how stage.Ending, uids ...pleg.PodUID) (do effects) {
		for _, uid := range uids {
			c, again, _ := m.next(now)
			if c == nil {
				c = again
			}
			if c == nil || c.UID != uid {
				t.Fatalf("the next is %+v, want pod %s", c, uid)
			}
			m.step(accepted{c}, now)
			do = m.step(settle{stage.Settled{UID: uid, How: how}}, now)
		}
		return do
	}
	waits := func(when string, want ...time.Duration) {
		t.Helper()
		for n, h := range m.quarantines.pods {
			if got := h.NextTry.Sub(now); n >= len(want) || got != want[n] {
				t.Errorf("%s: %s waits for %v, want %v", when, h.UID, got, want)
			}
		}
	}
	list("=running", "a")
	first := now
	c, _, _ := m.next(now)
	m.step(accepted{c}, now)
	list("=running", "a", "b")
	if do := m.step(settle{stage.Settled{UID: "a", How: stage.Committed}}, now); !do.mark.Current.Equal(first) {
		t.Errorf("complete is the list of %v, want the first", do.mark.Current)
	}
	inspect(stage.Committed, "b")
	list("=running", "a", "b", "c", "d")
	inspect(stage.Committed, "c", "d")
	list("=exited", "a", "b", "c", "d")
	inspect(stage.FailedHung, "a", "b", "c", "d")
	list("=exited", "a", "b", "c", "d")
	waits("a second later", 0, 0, 0, 0)
	for n, h := range m.quarantines.pods[1:] {
		h.NextTry = now.Add(time.Duration(n+1) * time.Hour)
	}
	inspect(stage.Contradicted, "a")
	waits("after a success", 0, 2*time.Hour, 3*time.Hour)
	inspect(stage.Committed, "b")
	waits("after another", 0, 3*time.Hour)
	list("=exited", "a", "b", "d", "e")
	waits("after an end", 3*time.Hour-time.Second)
	m.quarantines.pods[0].NextTry = now
	if c, again, _ := m.next(now); c == nil || c.UID != "e" || again != nil {
		t.Errorf("the next are %+v and %+v, want only the pod that does not hang", c, again)
	}
	m.step(request{uid: "d"}, now) // an event ends its wait
	if _, again, _ := m.next(now); again == nil || again.UID != "d" {
		t.Errorf("the next retry is %+v, want pod d", again)
	}
}

// Only the state in the first list is marked as found, however late the change is committed.
func TestFoundByTheFirstList(t *testing.T) {
	for script, want := range map[string]string{
		"list a=running b=exited; inspect":                                          "Started(a) Ran(b) Died(b)",
		"list a=running; inspect; fail; list a=exited b=running; inspect":           "Ran(a)",
		"list a=created b=created; inspect; fail; list a=running b=exited; inspect": "",
		"list a=running /s=running; inspect; fail; list /s=running; inspect":        "Started(a) Started(/s)",
		"list a=running; inspect; ok; list a=exited; inspect":                       "",
		"list -; list a=running; inspect":                                           "",
		"all< a=running; one< a=running; one>; all>; inspect":                       "Started(a)",
		"all< -; one< a=running; one>; all>; inspect":                               "",
	} {
		s := play(t, script)
		found := slices.DeleteFunc(s.inFlight.Events, func(ev pleg.Event) bool { return !ev.Replayed })
		if got := plegtest.Words(found...); got != want {
			t.Errorf("%s: %q is marked as found, want %q", script, got, want)
		}
	}
}

// A change is counted once, by the list that found it.
func TestChangesAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		script   string
		all, one int
	}{
		"a pod, its end and its removal":   {"list a=running; inspect; ok; one< a=exited; one>; inspect; ok; list -; left", 2, 1},
		"an unchanged list":                {"list a=running; list a=running; inspect; ok; list a=running", 1, 0},
		"an unchanged list of the pod":     {"list a=running; inspect; ok; one< a=running; one>", 1, 0},
		"two changes during an inspection": {"list a=running; inspect; list a=exited; one< a=exited b=running; one>; ok; inspect; ok", 2, 1},
		"a retry and a reinspection":       {"list a=running; inspect; fail; list a=running; inspect; ok; reinspect; list a=running; inspect; ok", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, tc.script)
			if s.foundByAll != tc.all || s.foundByOne != tc.one {
				t.Errorf("%d changes were found by lists of all pods, %d by lists of one, want %d and %d", s.foundByAll, s.foundByOne, tc.all, tc.one)
			}
		})
	}
}

// After a success one pod of the quarantine is tried, and the others wait: a runtime that has just recovered
// is not flooded with all of them.
func TestSuccessFreesTheNextPod(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		inspected bool
		busy      int // how many pods have a retry in flight
		after     time.Duration
		due       string // of the pods 1 to 4, when pod 0 leaves
	}{
		"a success":                       {true, 0, 0, "1"},
		"one retry is in flight":          {true, 1, 0, "2"},
		"the pod is gone":                 {false, 0, 0, ""},
		"the next has waited long enough": {true, 0, 3 * time.Second, "1 2"},
		"all have waited long enough":     {true, 0, time.Minute, "1 2 3 4"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuarantines(2*time.Second, 5*time.Minute, 8)
			records := make([]*record, 5)
			for n := range records {
				records[n] = &record{uid: pleg.PodUID(fmt.Sprint(n)), named: &pleg.Pod{}}
				q.add(records[n], stage.Settled{How: stage.FailedHung}, start.Add(time.Duration(n)*time.Second))
			}
			for _, rec := range records[1 : 1+tc.busy] {
				rec.phase = inspecting
			}
			now := start.Add(tc.after)
			q.release(records[0], tc.inspected, now)
			var due []string
			for _, h := range q.pods {
				if !h.NextTry.After(now) {
					due = append(due, string(h.UID))
				}
			}
			if got := strings.Join(due, " "); got != tc.due {
				t.Errorf("due are %q, want %q", got, tc.due)
			}
		})
	}
}

// A hang is reported since its first inspection began, with the call that it waited for.
func TestQuarantineIsReported(t *testing.T) {
	q := newQuarantines(time.Second, time.Minute, 8)
	rec := &record{uid: explorePod, named: podOf("a=running")}
	now, hung := time.Unix(1000, 0), &pleg.CallError{Call: pleg.Call{Method: "ContainerStatus"}, Err: errors.New("no answer")}
	q.add(rec, stage.Settled{Err: hung, Took: 2 * time.Second, How: stage.FailedHung}, now)
	if _, entered := q.add(rec, stage.Settled{Err: hung, Took: 2 * time.Second, How: stage.FailedHung}, now.Add(5*time.Second)); entered {
		t.Error("the pod enters a second time")
	}
	want := pleg.Quarantined{
		UID: explorePod, Namespace: "ns", Name: "name-p", Since: now.Add(-2 * time.Second), Hung: 2,
		NextTry: now.Add(7 * time.Second), Err: hung, Call: &hung.Call,
	}
	if got := q.published(); len(got) != 1 || got[0] != want {
		t.Errorf("quarantined = %+v, want %+v", got, want)
	}
	other := &record{uid: "other", named: podOf("b=running")}
	q.add(other, stage.Settled{How: stage.FailedHung}, now.Add(5*time.Second))
	if got := q.published(); len(got) != 2 || got[0].UID != "other" || got[1] != want {
		t.Errorf("quarantined = %+v, want the one first whose wait ends first", got)
	}
	q.pods[0].Hung = 99 // hours later
	q.add(other, stage.Settled{How: stage.FailedHung}, now)
	if got := q.pods[q.of(other)].NextTry.Sub(now); got != 30*time.Second {
		t.Errorf("after 100 hangs the wait is %v, want half of the longest", got)
	}
	q.release(other, false, now)
	for hung, want := range map[int]time.Duration{2: 4 * time.Second, 10: 1024 * time.Second, 11: 1024 * time.Second} {
		q.pods[0].Hung = hung
		if got := q.patience(rec); got != want {
			t.Errorf("after %d hangs requests end an inspection after %v, want %v: the period, doubled with each hang", hung, got, want)
		}
	}
}

// A release is logged with the number of inspections that hung, and the time since the first of
// them.
func TestReleaseIsLogged(t *testing.T) {
	s := play(t, "list a=running; inspect; hang; list a=running; wait 1s; retry")
	do := s.m.step(settle{stage.Settled{UID: explorePod, How: stage.Committed}}, s.now)
	if got, want := fmt.Sprint(do.released), "[[podUID p pod ns/name-p gone false after 1.003s hung 1]]"; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
	s = play(t, "list a=running; inspect")
	do = s.m.step(settle{stage.Settled{UID: explorePod, How: stage.FailedLate, Took: 2 * time.Second, Err: errors.New("no answer")}}, s.now)
	if got, want := fmt.Sprint(do.quarantined), "[[podUID p pod ns/name-p age 2s failedLate true nextTry 1s err no answer]]"; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
	s.now = s.now.Add(9*time.Second + time.Microsecond) // rounded
	do = s.m.step(&listing{stage.Listing{Asked: stage.Asked{Began: s.ticks.Next(), Answered: s.ticks.Next(), At: s.now}}}, s.now)
	if got, want := fmt.Sprint(do.released), "[[podUID p pod ns/name-p gone true after 11s hung 1]]"; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
}

// That a pod hangs is logged once.
func TestQuarantineIsLoggedOnce(t *testing.T) {
	s := play(t, "list a=running; inspect; hang; list a=running; wait 1s; retry")
	if do := s.m.step(settle{stage.Settled{UID: explorePod, How: stage.FailedHung}}, s.now); len(do.quarantined) > 0 || !do.relistSoon {
		t.Errorf("the second time is logged: %v", do.quarantined)
	}
}

// Several listings may become complete at once: the newest counts, each caller is answered, and the pods behind it
// are told in the order of their answers.
func TestListingsBecomeComplete(t *testing.T) {
	at := func(began uint64) stage.Asked {
		return stage.Asked{Began: began, Answered: began + 1, At: time.Unix(int64(began), 0)}
	}
	records := make(map[pleg.PodUID]*record)
	var pods []*pleg.Pod
	for n, until := range []uint64{11, 15, 19, 11, 20} { // two of one time, one at the list
		pods = append(pods, plegtest.Pod(pleg.PodUID(fmt.Sprint(9-n)), "a=running"))
		records[pods[n].UID] = &record{named: pods[n], until: at(until)}
	}
	records["unknown"] = &record{until: at(1)}
	records[pods[4].UID].owes = 30
	callers := []chan<- error{make(chan error), make(chan error), make(chan error), make(chan error)}
	b := backlog{open: []open{{at(10), callers[:2]}, {at(20), callers[2:3]}, {at(30), callers[3:]}}}
	got := b.complete(records)
	if want := []stage.Behind{{Pod: pods[3], Until: at(11).At}, {Pod: pods[0], Until: at(11).At}, {Pod: pods[1], Until: at(15).At}, {Pod: pods[2], Until: at(19).At}}; !slices.Equal(got.Behind, want) {
		t.Errorf("behind are %v, want %v", got.Behind, want)
	}
	if got.Current != at(20).At || !slices.Equal(got.Relisted, callers[:3]) || len(b.open) != 1 {
		t.Errorf("complete is %v for %d callers, and %d wait; want the second list, 3 callers and the last", got.Current, len(got.Relisted), len(b.open))
	}
	if got := b.complete(records); !got.Current.IsZero() || got.Relisted != nil || got.Behind != nil {
		t.Errorf("then %+v is complete, want none", got)
	}
}

// Without an input the machine is asked again at the earliest time at which something is due.
func TestNextIsAskedAgain(t *testing.T) {
	for script, want := range map[string]time.Duration{
		"list -":                                                0,
		"list a=running":                                        500 * time.Millisecond,
		"list a=running; event b=removed":                       goWait,
		"list a=running; event b=created":                       patience - time.Millisecond,
		"list a=running; inspect":                               0,
		"list a=running; inspect; ok":                           0,
		"list a=running; inspect; fail":                         0,
		"list a=running; inspect; hang":                         time.Second,
		"list a=running; inspect; late":                         time.Second,
		"list a=running; inspect; contradicts":                  time.Second,
		"list a=running; inspect; contradicts; wait 400ms":      599 * time.Millisecond,
		"list a=running; inspect; contradicts; event b=removed": goWait,
		"list a=running; inspect; contradicts; event b=created": 999 * time.Millisecond,
		"list a=running; inspect; hang; event b=removed":        goWait,
		"list a=running; inspect; hang; event b=created":        999 * time.Millisecond,
		"list a=running; inspect; contradicts; wait 1s; list a=running; retry; contradicts":                                     2 * time.Second,
		"list a=running; inspect; contradicts; wait 1s; list a=running; retry; contradicts; wait 2s; list a=running; retry; ok": 0,
	} {
		s := play(t, script)
		_, _, again := s.m.next(s.now)
		if got := again.Sub(s.now); got != want && (want != 0 || !again.IsZero()) {
			t.Errorf("%s: next is asked again after %v, want %v", script, got, want)
		}
	}
}

// The first of the queue is inspected next, and the last only once nothing was accepted and nothing ended for
// a while. Each accepted or ended change starts this time again.
func TestLastOfTheQueueComesFirstAfterAPause(t *testing.T) {
	m := newMachine(Options{RelistPeriod: time.Second, MaxQuarantine: time.Minute, Inspectors: 8})
	start := time.Unix(1000, 0)
	want := func(after time.Duration, uid pleg.PodUID) {
		t.Helper()
		if c, _, _ := m.next(start.Add(after)); c == nil || c.UID != uid {
			t.Errorf("after %v the next is %+v, want pod %s", after, c, uid)
		}
	}
	late := func(uid pleg.PodUID) {
		t.Helper()
		if c := m.late(); (c == nil) != (uid == "") || c != nil && c.UID != uid {
			t.Errorf("found since the last was accepted is %+v, want %q", c, uid)
		}
	}
	late("")
	var pods []*pleg.Pod
	for _, uid := range []pleg.PodUID{"1", "2", "3", "4"} {
		pods = append(pods, plegtest.Pod(uid, "c"+string(uid)+"=running"))
	}
	m.step(&listing{stage.Listing{Asked: stage.Asked{Began: 1, Answered: 2, At: start}, Pods: pods}}, start)
	late("4")
	want(patience-1, "1")
	want(patience, "4")
	first, _, _ := m.next(start)
	m.step(accepted{first}, start.Add(400*time.Millisecond))
	late("")
	want(400*time.Millisecond+patience-1, "2")
	want(400*time.Millisecond+patience, "4")
	m.step(settle{stage.Settled{UID: "1", How: stage.Hangs}}, start.Add(600*time.Millisecond)) // the inspection has not ended
	want(400*time.Millisecond+patience, "4")
	m.step(settle{stage.Settled{UID: "1", How: stage.Committed}}, start.Add(800*time.Millisecond))
	want(800*time.Millisecond+patience-1, "2")
	want(800*time.Millisecond+patience, "4")
	list := func(began uint64, after time.Duration, pods ...*pleg.Pod) {
		at := start.Add(after)
		m.step(&listing{stage.Listing{Asked: stage.Asked{Began: began, Answered: began + 1, At: at}, Pods: pods}}, at)
	}
	list(3, time.Second, pods[0], pods[1], pods[2], pods[3], plegtest.Pod("5", "c5=running")) // a new pod moves nothing
	want(800*time.Millisecond+patience-1, "2")
	want(800*time.Millisecond+patience, "5")
	late("5")
	list(5, time.Second, pods[0], pods[1], pods[3], plegtest.Pod("5", "c5=running")) // the third has left
	for _, uid := range []pleg.PodUID{"2", "4", "5"} {
		want(time.Second, uid)
		c, _, _ := m.next(start.Add(time.Second))
		m.step(accepted{c}, start.Add(time.Second))
	}
	list(7, 2*time.Second, plegtest.Pod("6", "c6=running"))
	late("6")
	list(9, 2*time.Second)
	late("")
}

// Pods in doubt are inspected in the order in which their waits end, each with a wait of its own.
func TestDoubtsHaveTheirOwnWaits(t *testing.T) {
	start := time.Unix(1000, 0)
	d := doubts{first: time.Second, longest: 3 * time.Second}
	a, b := &record{uid: "a"}, &record{uid: "b"}
	after := func(want string) {
		t.Helper()
		var got []string
		for _, one := range d.pods {
			got = append(got, fmt.Sprint(one.rec.uid, " ", one.due.Sub(start)))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("in doubt are %v, want %s", got, want)
		}
	}
	d.add(a, start)
	d.add(b, start.Add(time.Second/2))
	after("a 1s, b 1.5s")
	d.add(a, start.Add(time.Second))
	after("b 1.5s, a 3s")
	d.add(a, start.Add(3*time.Second))
	after("b 1.5s, a 6s")
	d.remove(b)
	after("a 6s")
	d.add(b, start.Add(4*time.Second))
	after("b 5s, a 6s")
	b.current, a.current, a.asked.Began = podOf("a=running"), podOf("a=running"), 1 // no answer about b since its inspection
	if c, again := d.next(start.Add(5 * time.Second)); c != nil || !again.Equal(start.Add(6*time.Second)) {
		t.Errorf("the next is %+v, again at %v, want none before a is due", c, again)
	}
	if c, _ := d.next(start.Add(6 * time.Second)); c == nil || c.UID != "a" {
		t.Errorf("the next is %+v, want a", c)
	}
	d.remove(a)
	after("b 5s")
}
