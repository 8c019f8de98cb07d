package faults_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

const (
	// logLength is less than the number of events in a scenario.
	logLength = 80
	// slowest is the longest pause of a slow subscriber after an event; timeToRead is enough for it.
	slowest, timeToRead = 100 * time.Millisecond, 30 * time.Second
	// maxSubscribers is the number of subscribers from which on some leave.
	maxSubscribers = 12
)

// audience are the subscribers of a scenario. They join, in the process and over the socket, and leave
// while pods change and calls fail.
type audience struct {
	f       *fixture
	rng     *rand.Rand
	service plegv1.PLEGClient
	of      []*subscriber
	joined  int
	ended   chan struct{} // closed once the pipeline has ended
}

type subscriber struct {
	*kit.Subscriber
	stream *promises.Stream
}

func newAudience(f *fixture) *audience {
	srv, err := server.New(f.Pipeline.Pipeline, server.Options{})
	kit.Must(f.t, err)
	dial, _ := kit.Serve(f.t, srv.Serve)
	a := &audience{
		f: f, rng: rand.New(rand.NewPCG(f.scenario.seed, 7)), service: plegv1.NewPLEGClient(kit.Connect(f.t, dial)), ended: make(chan struct{}),
	}
	a.unread(pleg.SubscribeOptions{Replay: true})
	return a
}

// subscribe returns a subscriber that pauses after each event, unless pause is nil. wants is the part
// of its filter about containers.
func (a *audience) subscribe(o pleg.SubscribeOptions, wants func(promises.Pod, promises.Container) bool, pause func(), overSocket bool) *subscriber {
	p := promised(a.f.scenario)
	s := &promises.Stream{
		Replay: o.Replay, Bookmarks: o.Bookmarks, Network: o.Filter.NetworkEvents, After: o.After, Types: o.Filter.Types, Wants: wants,
		Epoch: a.f.Epoch(), Kept: logLength, State: promises.State{Look: a.f.Cache().Get, Statuses: o.Statuses},
		Late: pause != nil, Still: true, Repeats: p.Repeats, Lies: p.Lies,
	}
	if o.After.Epoch != a.f.Epoch() { // the history is older than the cache
		s.Cache = a.f.Cache()
	}
	see := func(ev pleg.Event) {
		if s.Add(ev); pause != nil {
			pause()
		}
	}
	if overSocket {
		return &subscriber{a.watch(o, see), s}
	}
	return &subscriber{a.f.Follow(a.f.t, o, see), s}
}

// unread adds a subscriber that reads one event, and the next once the pipeline has ended. It is in the
// process: over a socket, events would leave the log for buffers.
func (a *audience) unread(o pleg.SubscribeOptions) {
	s := a.subscribe(o, nil, func() { <-a.ended }, false)
	s.stream.Unread = true
	a.of = append(a.of, s)
}

func (a *audience) watch(o pleg.SubscribeOptions, see func(pleg.Event)) *kit.Subscriber {
	t := a.f.t
	request, err := wire.FromOptions(o)
	kit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := a.service.Watch(ctx, request)
	kit.Must(t, err)
	_, err = stream.Header() // the header is sent once the subscription exists
	kit.Must(t, err)
	s := kit.NewSubscriber(see, cancel)
	go func() {
		defer close(s.Done)
		defer cancel()
		for {
			m, err := stream.Recv()
			if err != nil {
				if code := status.Code(err); code != codes.Canceled && code != codes.Unavailable {
					t.Errorf("the stream ended with %v", err)
				}
				return
			}
			s.Add(wire.ToEvent(m.GetEvent()))
		}
	}()
	return s
}

// change lets a subscriber join, and another one leave if there are many.
func (a *audience) change() {
	if a.f.scenario.alone {
		return
	}
	a.join()
	if n := len(a.of); n > maxSubscribers {
		a.of[1].Close() // the first one does not read
		a.of = slices.Delete(a.of, 1, 2)
	}
}

// join adds a subscriber. In turn they begin with a replay, at a position, and so on.
func (a *audience) join() {
	o := pleg.SubscribeOptions{Bookmarks: a.rng.IntN(2) == 0, Replay: a.rng.IntN(4) > 0}
	switch a.joined++; a.joined % 4 {
	case 0: // the beginning, or a number that is not given yet
		o.After = pleg.Position{Epoch: a.f.Epoch(), Seq: uint64(a.rng.IntN(2)) << 40}
	case 1:
		o.After = pleg.Position{Epoch: "another", Seq: 7}
	case 2:
		if all := a.f.Published(); len(all) > 0 {
			o.After, _ = all[len(all)-1-a.rng.IntN(min(len(all), logLength))].Position()
		}
	case 3:
		o.Replay = true
	}
	filter, wants := a.filter()
	o.Filter = filter
	// The event after a failed inspection may be of a sandbox.
	o.Statuses = filter.OmitSandboxes || a.rng.IntN(2) == 0
	var pause func()
	if a.rng.IntN(3) > 0 {
		rng := rand.New(rand.NewPCG(a.rng.Uint64(), 0))
		pause = func() { time.Sleep(time.Duration(rng.Int64N(int64(slowest)))) }
	}
	a.of = append(a.of, a.subscribe(o, wants, pause, a.rng.IntN(2) == 0))
}

// filter returns a filter, and which containers it wants; nil for all.
func (a *audience) filter() (pleg.Filter, func(promises.Pod, promises.Container) bool) {
	of := func(namespace, name string) func(promises.Pod, promises.Container) bool {
		return func(p promises.Pod, _ promises.Container) bool {
			return (namespace == "" || p.Namespace == namespace) && strings.HasPrefix(p.Name, name)
		}
	}
	switch a.rng.IntN(10) {
	case 0:
		return pleg.Filter{NetworkEvents: true}, nil
	case 1:
		return pleg.Filter{Types: []pleg.EventType{pleg.ContainerDied, pleg.ContainerRemoved}}, nil
	case 2:
		return pleg.Filter{NetworkEvents: true, Types: []pleg.EventType{pleg.NetworkSetupCompleted, pleg.NetworkFailed}}, nil
	case 3:
		return pleg.Filter{Namespaces: []string{"shop", "none"}}, of("shop", "")
	case 4:
		if pods := a.f.Node.Pods(); len(pods) > 0 {
			one := pods[a.rng.IntN(len(pods))]
			return pleg.Filter{PodUIDs: []pleg.PodUID{pleg.PodUID(one.UID), "none"}}, of(one.Namespace, one.Name)
		}
	case 5: // the label of a removed pod is still known
		return pleg.Filter{Selector: "app in (web, cart), app != cart"}, of("", "web-")
	case 6:
		return pleg.Filter{OmitSandboxes: true}, func(_ promises.Pod, c promises.Container) bool { return !c.Sandbox }
	case 7:
		ends := pleg.Filter{Namespaces: []string{"shop"}, Selector: "app=web", OmitSandboxes: true, Types: []pleg.EventType{pleg.ContainerDied}}
		return ends, func(p promises.Pod, c promises.Container) bool { return of("shop", "web-")(p, c) && !c.Sandbox }
	}
	return pleg.Filter{}, nil
}

// require fails unless each subscriber's stream keeps all promises. The pipeline has ended.
func (a *audience) require(t *testing.T, published []pleg.Event) {
	close(a.ended)
	published = slices.SortedStableFunc(slices.Values(slices.Concat(published, a.f.Corrections())), func(a, b pleg.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	for i, s := range a.of {
		<-s.Done
		s.stream.Published = func(string) []pleg.Event { return published }
		s.stream.History, s.stream.Truth, s.stream.Cached = a.f.History, a.f.Truth(), a.f.Cache().List()
		if err := s.stream.Check(); err != nil {
			t.Errorf("subscriber %d, %s: %v", i, describe(s.stream), err)
		}
		if !s.stream.Bookmarks && slices.ContainsFunc(s.stream.Events, func(ev pleg.Event) bool { return ev.Type == pleg.Bookmark }) {
			t.Errorf("subscriber %d: a bookmark, for which it did not ask", i)
		}
	}
	for _, p := range promises.All {
		if !a.f.scenario.alone && !slices.ContainsFunc(a.of, func(s *subscriber) bool { return p.About(s.stream) }) {
			t.Errorf("no subscriber is about the promise %s", p.Name)
		}
	}
}

func describe(s *promises.Stream) string {
	return fmt.Sprintf("replay %t, after %v, types %v, part of the containers %t, late %t", s.Replay, s.After, s.Types, s.Wants != nil, s.Late)
}
