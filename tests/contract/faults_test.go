package contract_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// contractFault is what fails while the promises are checked.
type contractFault struct {
	name string
	// set begins and ends the fault. It may be nil.
	set func(f *fixture, on bool)
	// deliver delivers the CRI events of one step of all pods. If nil, the runtime has
	// no CRI events.
	deliver func(f *fixture, hints []pleg.Hint)
}

var contractFaults = []contractFault{
	{name: "none"},
	{name: "lists fail", set: listFault(plegtest.Fail(errors.New("no list")))},
	{name: "lists hang", set: listFault(plegtest.Hang)},
	{name: "lists take 0.8 s", set: listFault(plegtest.Delay(800 * time.Millisecond))},
	{name: "an inspection fails", set: podFault(plegtest.Fail(errors.New("no status")))},
	{name: "an inspection hangs", set: podFault(plegtest.Hang)},
	{name: "an inspection panics", set: podFault(plegtest.Panic("no"))},
	{name: "inspections take 0.8 s", set: func(f *fixture, on bool) {
		f.Runtime.SetInspectFault(faultIf(on, plegtest.Delay(800*time.Millisecond)))
	}},
	{name: "the runtime is gone", set: gone},
	{name: "CRI events, no fault", deliver: announce},
	{name: "CRI events are lost", deliver: func(f *fixture, hints []pleg.Hint) {
		kept := hints[:0]
		for i, h := range hints {
			if i%3 > 0 {
				kept = append(kept, h)
			}
		}
		announce(f, kept)
	}},
	{name: "CRI events come twice", deliver: func(f *fixture, hints []pleg.Hint) {
		announce(f, hints)
		announce(f, hints)
	}},
	{name: "CRI events are 1.2 s late", deliver: func(f *fixture, hints []pleg.Hint) {
		go func() { // ends before the test does, whose clock goes on
			time.Sleep(1200 * time.Millisecond)
			announce(f, hints)
		}()
	}},
	{name: "CRI events go backwards", deliver: func(f *fixture, hints []pleg.Hint) {
		slices.Reverse(hints)
		announce(f, hints)
	}},
	{name: "the event stream breaks", deliver: func(f *fixture, hints []pleg.Hint) {
		announce(f, hints[:len(hints)/2])
		f.Runtime.EndWatches(errors.New("broken"))
		announce(f, hints[len(hints)/2:])
	}},
	{name: "the runtime restarts", deliver: announce, set: func(f *fixture, on bool) {
		gone(f, on)
		f.Runtime.SetWatchFault(faultIf(on, plegtest.Fail(pleg.ErrUnavailable)))
		f.Runtime.EndWatches(pleg.ErrUnavailable)
	}},
}

// faultIf returns the fault if it is on, otherwise none.
func faultIf(on bool, fault plegtest.Fault) plegtest.Fault {
	if on {
		return fault
	}
	return nil
}

func listFault(fault plegtest.Fault) func(*fixture, bool) {
	return func(f *fixture, on bool) { f.Runtime.SetListFault(faultIf(on, fault)) }
}

func podFault(fault plegtest.Fault) func(*fixture, bool) {
	return func(f *fixture, on bool) { f.Runtime.SetPodFault("p3", faultIf(on, fault)) }
}

func gone(f *fixture, on bool) {
	f.Runtime.SetListFault(faultIf(on, plegtest.Fail(pleg.ErrUnavailable)))
	f.Runtime.SetInspectFault(faultIf(on, plegtest.Fail(pleg.ErrUnavailable)))
}

func announce(f *fixture, hints []pleg.Hint) {
	for _, h := range hints {
		f.Runtime.AnnounceHint(h)
	}
}

// hintsOf returns the events of what differs between two states of a pod.
func hintsOf(before, after *pleg.Pod) (hints []pleg.Hint) {
	was, is := containersOf(before), containersOf(after)
	add := func(c *pleg.Container, state pleg.State, removed bool) {
		h := pleg.Hint{UID: after.UID, Container: c.ID, Sandbox: c.SandboxID, State: state, Removed: removed, Name: c.Name, PodName: after.Name, PodNamespace: after.Namespace}
		if slices.Contains(after.Sandboxes, c) || slices.Contains(before.Sandboxes, c) {
			h.Sandbox = c.ID
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

// logLength is shorter than what is published while subscribers do not read.
const logLength = 200

// TestContractPromisesUnderFaults checks every promise with every fault, for subscribers
// of several kinds, in the process and over the socket: one reads everything, one is slow,
// two do not read until the pipeline has ended, one has a filter, and one each replays,
// resumes, and resumes in another epoch during the fault.
func TestContractPromisesUnderFaults(t *testing.T) {
	for _, fault := range contractFaults {
		t.Run(fault.name, func(t *testing.T) {
			o := pipeline.Options{ListTimeout: 2 * time.Second, History: logLength}
			if fault.deliver != nil {
				o.Events, o.RelistPeriodWithEvents = pipeline.EventsRequire, 2*time.Second
			}
			eachWay(t, o, func(f *fixture) {
				f.deliver = fault.deliver
				all, subscribers := f.runUnderFault(fault)
				for i, s := range subscribers {
					f.require(fmt.Sprint("subscriber ", i), s, all)
				}
				for _, p := range promises.All {
					if !slices.ContainsFunc(subscribers, func(s subscriber) bool { return p.About(s.stream) }) {
						f.Errorf("no subscriber is about the promise %s", p.Name)
					}
				}
			})
		})
	}
}

// runUnderFault lets pods live before, during and after the fault, while subscribers of
// all kinds join, until the pipeline has ended.
func (f *fixture) runUnderFault(fault contractFault) (all subscriber, subscribers []subscriber) {
	set := fault.set
	if set == nil {
		set = func(*fixture, bool) {}
	}
	all = f.subscribe(pipeline.SubscribeOptions{})
	slow := f.subscribeSlowly(pipeline.SubscribeOptions{}, nil, func() {})
	slow.Pause()
	ended := make(chan struct{})
	unread := []subscriber{f.subscribeUnread(pipeline.SubscribeOptions{}, ended)}
	subscribers = []subscriber{
		slow,
		f.subscribe(pipeline.SubscribeOptions{Bookmarks: true}),
		f.subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.ContainerDied}}}),
	}
	f.live(3)
	set(f, true)
	subscribers = append(subscribers, f.subscribe(pipeline.SubscribeOptions{Replay: true, Bookmarks: true}))
	f.live(len(podLife))
	published := all.Events()
	subscribers = append(subscribers,
		f.subscribe(pipeline.SubscribeOptions{After: pleg.Position{Epoch: f.Epoch(), Seq: published[len(published)-30].Seq}}),
		f.subscribe(pipeline.SubscribeOptions{After: pleg.Position{Epoch: "another", Seq: 7}}))
	set(f, false)
	f.live(3)
	slow.Resume()
	kit.Relist(5)
	unread = append(unread, f.subscribeUnread(pipeline.SubscribeOptions{Replay: true}, ended))
	synctest.Wait()
	_ = f.Stop() // kit.Run reports the error
	close(ended)
	subscribers = append(subscribers, unread...)
	for _, s := range subscribers {
		<-s.Done
	}
	return all, subscribers
}

// subscribeUnread returns a subscriber that reads one event, and the next once the
// pipeline has ended. It is in the process: a socket has buffers that would read for it.
func (f *fixture) subscribeUnread(o pipeline.SubscribeOptions, ended <-chan struct{}) subscriber {
	over := f.open
	f.open = f.subscribeInProcess
	s := f.subscribeSlowly(o, nil, func() { <-ended })
	f.open = over
	s.stream.Unread = true
	return s
}
