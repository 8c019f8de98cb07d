package contract_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// contractFault is what fails while the promises are checked.
type contractFault struct {
	name string
	// set begins and ends the fault. It may be nil.
	set func(f *faulty, on bool)
	// deliver delivers the CRI events of one step of all pods. If nil, the runtime has
	// no CRI events.
	deliver func(f *faulty, n int, hints []pleg.Hint)
}

var contractFaults = []contractFault{
	{name: "none"},
	{name: "lists fail", set: listFault(plegtest.Fail(errors.New("no list")))},
	{name: "lists hang", set: listFault(plegtest.Hang)},
	{name: "lists take 0.8 s", set: listFault(plegtest.Delay(800 * time.Millisecond))},
	{name: "an inspection fails", set: podFault(plegtest.Fail(errors.New("no status")))},
	{name: "an inspection hangs", set: podFault(plegtest.Hang)},
	{name: "an inspection panics", set: podFault(plegtest.Panic("no"))},
	{name: "inspections take 0.8 s", set: func(f *faulty, on bool) { f.Runtime.SetInspectFault(only(on, plegtest.Delay(800*time.Millisecond))) }},
	{name: "the runtime is gone", set: gone},
	{name: "CRI events, no fault", deliver: announce},
	{name: "CRI events are lost", deliver: func(f *faulty, n int, hints []pleg.Hint) {
		kept := hints[:0]
		for i, h := range hints {
			if (n+i)%3 > 0 {
				kept = append(kept, h)
			}
		}
		announce(f, n, kept)
	}},
	{name: "CRI events come twice", deliver: func(f *faulty, n int, hints []pleg.Hint) {
		announce(f, n, hints)
		announce(f, n, hints)
	}},
	{name: "CRI events are 1.2 s late", deliver: func(f *faulty, n int, hints []pleg.Hint) {
		go func() { // ends before the test does, whose clock goes on
			time.Sleep(1200 * time.Millisecond)
			announce(f, n, hints)
		}()
	}},
	{name: "CRI events go backwards", deliver: func(f *faulty, n int, hints []pleg.Hint) {
		slices.Reverse(hints)
		announce(f, n, hints)
	}},
	{name: "the event stream breaks", deliver: func(f *faulty, n int, hints []pleg.Hint) {
		announce(f, n, hints[:len(hints)/2])
		f.Runtime.EndWatches(errors.New("broken"))
		announce(f, n, hints[len(hints)/2:])
	}},
	{name: "the runtime restarts", deliver: announce, set: func(f *faulty, on bool) {
		gone(f, on)
		f.Runtime.SetWatchFault(only(on, plegtest.Fail(pleg.ErrUnavailable)))
		f.Runtime.EndWatches(pleg.ErrUnavailable)
	}},
}

// only returns the fault if it is on.
func only(on bool, fault plegtest.Fault) plegtest.Fault {
	if on {
		return fault
	}
	return nil
}

func listFault(fault plegtest.Fault) func(*faulty, bool) {
	return func(f *faulty, on bool) { f.Runtime.SetListFault(only(on, fault)) }
}

func podFault(fault plegtest.Fault) func(*faulty, bool) {
	return func(f *faulty, on bool) { f.Runtime.SetPodFault("p3", only(on, fault)) }
}

func gone(f *faulty, on bool) {
	f.Runtime.SetListFault(only(on, plegtest.Fail(pleg.ErrUnavailable)))
	f.Runtime.SetInspectFault(only(on, plegtest.Fail(pleg.ErrUnavailable)))
}

func announce(f *faulty, _ int, hints []pleg.Hint) {
	for _, h := range hints {
		f.Runtime.AnnounceHint(h)
	}
}

// faulty is a fixture in which no id of a container is used twice, as with a real runtime,
// and whose runtime may have CRI events.
type faulty struct {
	*fixture
	fault contractFault
}

// live makes every pod take n steps of its life, one at each list.
func (f *faulty) live(n int) {
	for range n {
		var hints []pleg.Hint
		for i, uid := range kit.UIDs(livingPods) {
			before, after := f.words(uid, f.steps+i-1), f.words(uid, f.steps+i)
			if f.steps == 0 {
				before = ""
			}
			time.Sleep(time.Millisecond) // two events of a runtime have different times
			f.Runtime.Set(uid, after)
			hints = append(hints, hintsOf(plegtest.Pod(uid, before), plegtest.Pod(uid, after))...)
		}
		f.steps++
		if f.fault.deliver != nil {
			f.fault.deliver(f, f.steps, hints)
		}
		kit.Relist(1)
	}
}

// words returns the state of a pod after a number of steps.
func (f *faulty) words(uid pleg.PodUID, steps int) string {
	words := strings.Fields(podLife[(steps+len(podLife))%len(podLife)])
	for i, word := range words {
		id, state, _ := strings.Cut(word, "=")
		words[i] = fmt.Sprintf("%s.%s.%d=%s", id, uid, (steps+len(podLife))/len(podLife), state)
	}
	return strings.Join(words, " ")
}

// hintsOf returns the events of what differs between two states of a pod, each with the
// whole pod.
func hintsOf(before, after *pleg.Pod) (hints []pleg.Hint) {
	was, is := containersOf(before), containersOf(after)
	add := func(c *pleg.Container, state pleg.State, removed bool) {
		h := pleg.Hint{UID: after.UID, At: time.Now(), Container: c.ID, State: state, Removed: removed}
		if len(after.Sandboxes) > 0 {
			h.Sandbox, h.Pod, h.Status = after.Sandboxes[0].ID, after, plegtest.Status(after)
			if after.Sandboxes[0].State == pleg.StateRunning {
				h.Status = plegtest.Status(after, plegtest.Address)
			}
		}
		hints = append(hints, h)
	}
	for _, c := range is {
		if i := slices.IndexFunc(was, func(o *pleg.Container) bool { return o.ID == c.ID }); i < 0 || was[i].State != c.State {
			add(c, c.State, false)
		}
	}
	for _, c := range was {
		if !slices.ContainsFunc(is, func(o *pleg.Container) bool { return o.ID == c.ID }) {
			add(c, pleg.StateExited, true)
		}
	}
	return hints
}

func containersOf(pod *pleg.Pod) []*pleg.Container {
	return slices.Concat(pod.Containers, pod.Sandboxes)
}
