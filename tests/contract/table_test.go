package contract_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// TestContractPromisesUnderFaults checks every promise with every fault, for subscribers
// of several kinds, in the process and over the socket: one reads everything, one is slow,
// one does not read until the pipeline has ended, one has a filter, and one each replays,
// resumes, and resumes in another epoch during the fault.
func TestContractPromisesUnderFaults(t *testing.T) {
	for _, fault := range contractFaults {
		for name, overSocket := range map[string]bool{"in process": false, "over the socket": true} {
			t.Run(fault.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					streams := newFaulty(t, fault, overSocket).run()
					for _, p := range promises.All {
						if !slices.ContainsFunc(streams, p.About) {
							t.Errorf("no subscriber is about the promise %s", p.Name)
						}
					}
					for _, s := range streams {
						if err := s.Check(); err != nil {
							t.Errorf("after %+v, types %v: %v\n\t%s", s.After, s.Types, err, plegtest.Words(s.Events...))
						}
					}
				})
			})
		}
	}
}

func newFaulty(t *testing.T, fault contractFault, overSocket bool) *faulty {
	t.Helper()
	runtime := plegtest.New()
	o := pipeline.Options{Runtime: runtime.Basic(), ListTimeout: 2 * time.Second}
	if fault.deliver != nil {
		o.Runtime, o.Events, o.RelistPeriodWithEvents = runtime, pipeline.EventsRequire, 2*time.Second
	}
	f := &faulty{newFixture(t, o), fault}
	f.Runtime = runtime
	if overSocket {
		client := f.serve()
		f.open = func(o pipeline.SubscribeOptions, see func(pleg.Event)) *kit.Subscriber {
			return f.watch(client, o, see)
		}
	}
	return f
}

// watched is a subscriber and its stream.
type watched struct {
	*kit.Subscriber
	*promises.Stream
}

func (f *faulty) join(o pipeline.SubscribeOptions) watched {
	s := &promises.Stream{Replay: o.Replay, Bookmarks: o.Bookmarks, After: o.After, Types: o.Types, Epoch: f.Epoch()}
	if s.State.Look = f.Cache().Get; o.After.Epoch != f.Epoch() { // the history is older than the cache
		s.Cache = f.Cache()
	}
	return watched{f.open(o, s.Add), s}
}

// run lets pods live before, during and after the fault, while subscribers of all kinds
// join, and returns what each saw.
func (f *faulty) run() (streams []*promises.Stream) {
	set := f.fault.set
	if set == nil {
		set = func(*faulty, bool) {}
	}
	all := f.subscribeInProcess(pipeline.SubscribeOptions{Buffer: 4000}, nil)
	slow, never := f.join(pipeline.SubscribeOptions{Buffer: 4}), f.joinUnread()
	slow.Late = true
	slow.Pause()
	subscribers := []watched{
		slow, never,
		f.join(pipeline.SubscribeOptions{Bookmarks: true}),
		f.join(pipeline.SubscribeOptions{Types: []pleg.EventType{pleg.ContainerDied}}),
	}
	f.live(3)
	set(f, true)
	subscribers = append(subscribers, f.join(pipeline.SubscribeOptions{Replay: true, Bookmarks: true}))
	f.live(len(podLife))
	published := all.Events()
	subscribers = append(subscribers,
		f.join(pipeline.SubscribeOptions{After: pleg.Position{Epoch: f.Epoch(), Seq: published[len(published)/2].Seq}}),
		f.join(pipeline.SubscribeOptions{After: pleg.Position{Epoch: "another", Seq: 7}}))
	set(f, false)
	f.live(3)
	slow.Resume()
	kit.Relist(5)
	truth, entries := f.truth(), f.Cache().List()
	_ = f.Stop() // kit.Run reports the error
	never.Resume()
	for _, w := range subscribers {
		<-w.Done
		w.Published = func(string) []pleg.Event { return all.Events() }
		w.Truth, w.Cached = truth, entries
		streams = append(streams, w.Stream)
	}
	return streams
}

// joinUnread returns a subscriber that does not read. It is in the process: a socket has
// buffers that would read for it.
func (f *faulty) joinUnread() watched {
	s := &promises.Stream{Unread: true, Epoch: f.Epoch()}
	s.State.Look = f.Cache().Get
	w := watched{f.subscribeInProcess(pipeline.SubscribeOptions{Buffer: 4}, s.Add), s}
	w.Pause()
	return w
}

// truth returns what the runtime has.
func (f *faulty) truth() promises.Truth {
	pods, err := f.Runtime.ListPods(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	var entries []cache.Entry
	for _, pod := range pods {
		status, err := f.Runtime.PodStatus(f.Context(), pod, nil)
		if err != nil {
			f.Fatal(err)
		}
		entries = append(entries, cache.Entry{UID: pod.UID, Status: status})
	}
	return promises.CachedTruth(entries)
}
