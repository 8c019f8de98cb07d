// Package contract_test tests the contract of a subscription clause by clause, each
// with subscribers in the process and at the other end of the gRPC service. Package
// promises has the checks.
package contract_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// The number is small here; "make faults" runs more.
var seeds = flag.Uint64("contract.seeds", 2, "number of seeds of the random test of subscribers")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a running pipeline and a way to subscribe to it.
type fixture struct {
	*testing.T
	*kit.Pipeline
	// open subscribes. The subscriber's reader calls see with each event.
	open    func(o pipeline.SubscribeOptions, see func(pleg.Event)) *kit.Subscriber
	kept    uint64
	steps   map[pleg.PodUID]int // that each pod has taken
	pods    map[pleg.PodUID]string
	history *promises.History
}

type subscriber struct {
	*kit.Subscriber
	stream *promises.Stream
}

// eachWay runs a test in a bubble for each way to subscribe, on a running pipeline.
func eachWay(t *testing.T, o pipeline.Options, test func(*fixture)) {
	for name, overSocket := range map[string]bool{"in process": false, "over the socket": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, o)
				f.StartBetweenLists(t)
				if overSocket {
					client := f.serve()
					f.open = func(o pipeline.SubscribeOptions, see func(pleg.Event)) *kit.Subscriber {
						return f.watch(client, o, see)
					}
				}
				test(f)
			})
		})
	}
}

// newFixture returns a fixture whose pipeline does not run yet.
func newFixture(t *testing.T, o pipeline.Options) *fixture {
	t.Helper()
	f := &fixture{T: t, Pipeline: kit.New(t, o), kept: uint64(o.History), steps: make(map[pleg.PodUID]int), pods: make(map[pleg.PodUID]string), history: promises.NewHistory()}
	f.open = f.subscribeInProcess
	return f
}

func (f *fixture) subscribe(o pipeline.SubscribeOptions) subscriber {
	f.Helper()
	return f.subscribeSlowly(o, nil, nil)
}

// subscribeSlowly returns a subscriber that pauses after each event, unless pause is nil. wants
// is what its filter wants.
func (f *fixture) subscribeSlowly(o pipeline.SubscribeOptions, wants func(promises.Pod, promises.Container) bool, pause func()) subscriber {
	f.Helper()
	s := &promises.Stream{
		Replay: o.Replay, Bookmarks: o.Bookmarks, Network: o.Filter.NetworkEvents, After: o.After, Types: o.Filter.Types, Wants: wants,
		Epoch: f.Epoch(), Kept: f.kept, State: promises.State{Look: f.Cache().Get, Statuses: o.Statuses},
		Late: pause != nil,
	}
	if o.After.Epoch != f.Epoch() { // the history is older than the cache
		s.Cache = f.Cache()
	}
	return subscriber{f.open(o, func(ev pleg.Event) {
		if s.Add(ev); pause != nil {
			pause()
		}
	}), s}
}

// require fails unless a subscriber's stream keeps all promises. published is a
// subscriber that got everything.
func (f *fixture) require(name string, s, published subscriber) {
	f.Helper()
	all := published.Events()
	s.stream.Published = func(string) []pleg.Event { return all }
	s.stream.History, s.stream.Truth, s.stream.Cached = f.history, f.truth(), f.Cache().List()
	if err := s.stream.Check(); err != nil {
		f.Errorf("%s: %v\n\t%s", name, err, plegtest.Words(s.stream.Events...))
	}
	if !s.stream.Bookmarks && slices.ContainsFunc(s.stream.Events, func(ev pleg.Event) bool { return ev.Type == pleg.Bookmark }) {
		f.Errorf("%s: a bookmark, for which it did not ask", name)
	}
}

// truth returns what the runtime has.
func (f *fixture) truth() promises.Truth {
	var entries []cache.Entry
	for uid, words := range f.pods {
		pod := plegtest.Pod(uid, words)
		status := plegtest.Status(pod)
		if status.SandboxReady() {
			status = plegtest.Status(pod, plegtest.Address)
		}
		entries = append(entries, cache.Entry{UID: uid, Status: status})
	}
	return promises.CachedTruth(entries)
}

func (f *fixture) subscribeInProcess(o pipeline.SubscribeOptions, see func(pleg.Event)) *kit.Subscriber {
	f.Helper()
	return f.Follow(f.T, o, see)
}

// serve serves the pipeline and returns a client of the service.
func (f *fixture) serve() plegv1.PLEGClient {
	srv, err := server.New(f.Pipeline.Pipeline, server.Options{})
	kit.Must(f, err)
	dial, _ := kit.Serve(f, srv.Serve)
	return plegv1.NewPLEGClient(kit.Connect(f, dial))
}

func (f *fixture) watch(client plegv1.PLEGClient, o pipeline.SubscribeOptions, see func(pleg.Event)) *kit.Subscriber {
	f.Helper()
	request, err := wire.FromOptions(o)
	kit.Must(f, err)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := client.Watch(ctx, request)
	kit.Must(f, err)
	if _, err := stream.Header(); err != nil { // it is sent once the subscription exists
		f.Fatal(err)
	}
	s := kit.NewSubscriber(see, cancel)
	go func() {
		defer close(s.Done)
		defer cancel()
		for {
			m, err := stream.Recv()
			if err != nil {
				if code := status.Code(err); code != codes.Canceled && code != codes.Unavailable {
					f.Errorf("the stream ended with %v", err)
				}
				return
			}
			s.Add(wire.ToEvent(m.GetEvent()))
		}
	}()
	return s
}

// podLife are the states of a pod, list by list. Each pod is one step ahead of the
// pod before it.
var podLife = []string{
	"c1=created /s=running", "c1=running /s=running", "c1=exited c2=running /s=running",
	"c2=running /s=running", "c2=exited /s=running", "c2=exited /s=exited", "",
}

const livingPods = 20

// live makes every pod take n steps of its life, one at each list.
func (f *fixture) live(n int) {
	for range n {
		f.step(kit.UIDs(livingPods)...)
		kit.Relist(1)
	}
}

// step makes each of the pods take a step, which the next list shows.
func (f *fixture) step(uids ...pleg.PodUID) {
	for i, uid := range uids {
		if f.steps[uid] == 0 {
			f.steps[uid] = i
		}
		words := wordsOf(uid, f.steps[uid])
		f.steps[uid]++
		if f.Runtime.Set(uid, words); words == "" {
			delete(f.pods, uid)
		} else {
			f.pods[uid] = words
		}
	}
	f.history.Record(f.truth())
}

// wordsOf returns the state of a pod after a number of steps. As on a real runtime, no id
// is used twice.
func wordsOf(uid pleg.PodUID, steps int) string {
	words := strings.Fields(podLife[steps%len(podLife)])
	for i, word := range words {
		id, state, _ := strings.Cut(word, "=")
		words[i] = fmt.Sprintf("%s.%s.%d=%s", id, uid, steps/len(podLife), state)
	}
	return strings.Join(words, " ")
}
