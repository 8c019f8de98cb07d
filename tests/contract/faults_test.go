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

// contractFault is what fails while the promises are checked: lists, inspections of one pod, or
// all inspections.
type contractFault struct{ lists, onePod, allPods plegtest.Fault }

var contractFaults = map[string]contractFault{
	"none":                   {},
	"lists fail":             {lists: plegtest.Fail(errors.New("no list"))},
	"lists hang":             {lists: plegtest.Hang},
	"lists take 0.8 s":       {lists: plegtest.Delay(800 * time.Millisecond)},
	"an inspection fails":    {onePod: plegtest.Fail(errors.New("no status"))},
	"an inspection hangs":    {onePod: plegtest.Hang},
	"an inspection panics":   {onePod: plegtest.Panic("no")},
	"inspections take 0.8 s": {allPods: plegtest.Delay(800 * time.Millisecond)},
	"the runtime is gone":    {lists: plegtest.Fail(pleg.ErrUnavailable), allPods: plegtest.Fail(pleg.ErrUnavailable)},
}

func (f *fixture) set(fault contractFault) {
	f.Runtime.SetListFault(fault.lists)
	f.Runtime.SetPodFault("p3", fault.onePod)
	f.Runtime.SetInspectFault(fault.allPods)
}

// logLength is shorter than what is published while subscribers do not read.
const logLength = 200

// TestContractPromisesUnderFaults checks every promise with every fault, for subscribers
// of several kinds, in the process and over the socket: one reads everything, one is slow,
// two do not read until the pipeline has ended, one has a filter, and one each replays,
// resumes, and resumes in another epoch during the fault.
func TestContractPromisesUnderFaults(t *testing.T) {
	for name, fault := range contractFaults {
		t.Run(name, func(t *testing.T) {
			eachWay(t, pipeline.Options{ListTimeout: 2 * time.Second, History: logLength}, func(f *fixture) {
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
	f.set(fault)
	subscribers = append(subscribers, f.subscribe(pipeline.SubscribeOptions{Replay: true, Bookmarks: true}))
	f.live(len(podLife))
	published := all.Events()
	subscribers = append(subscribers,
		f.subscribe(pipeline.SubscribeOptions{After: pleg.Position{Epoch: f.Epoch(), Seq: published[len(published)-30].Seq}}),
		f.subscribe(pipeline.SubscribeOptions{After: pleg.Position{Epoch: "another", Seq: 7}}))
	f.set(contractFault{})
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
