// Package contract_test tests the contract of a subscription clause by clause, each
// with subscribers in the process and at the other end of the gRPC service. Package
// promises has the checks.
package contract_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The number is small here; "make faults" runs more.
var seeds = flag.Uint64("contract.seeds", 2, "number of seeds of the random test of subscribers")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a running pipeline and a way to subscribe to it.
type fixture struct {
	*testing.T
	*kit.Pipeline
	// open subscribes. The subscriber's reader calls see, if not nil, with each
	// event.
	open  func(o pipeline.SubscribeOptions, see func(pleg.Event)) *kit.Subscriber
	steps int // that the pods have taken
}

// eachWay runs a test in a bubble for each way to subscribe, on a running pipeline.
func eachWay(t *testing.T, o pipeline.Options, test func(*fixture)) {
	for name, overSocket := range map[string]bool{"in process": false, "over the socket": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, o)
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

// inProcess runs a test in a bubble that a transport in between would disturb.
func inProcess(t *testing.T, o pipeline.Options, test func(*fixture)) {
	synctest.Test(t, func(t *testing.T) { test(newFixture(t, o)) })
}

func newFixture(t *testing.T, o pipeline.Options) *fixture {
	t.Helper()
	f := &fixture{T: t, Pipeline: kit.New(t, o)}
	f.open = f.subscribeInProcess
	f.StartBetweenLists(t)
	return f
}

func (f *fixture) subscribe(o pipeline.SubscribeOptions) *kit.Subscriber {
	f.Helper()
	return f.open(o, nil)
}

func (f *fixture) subscribeInProcess(o pipeline.SubscribeOptions, see func(pleg.Event)) *kit.Subscriber {
	f.Helper()
	sub, err := f.Subscribe(o)
	if err != nil {
		f.Fatal(err)
	}
	s := kit.NewSubscriber(see, sub.Close)
	go func() {
		defer close(s.Done)
		for ev := range sub.Events() {
			s.Add(ev)
		}
	}()
	return s
}

// serve serves the pipeline and returns a client of the service.
func (f *fixture) serve() plegv1.PLEGClient {
	srv, err := server.New(f.Pipeline.Pipeline, server.Options{})
	if err != nil {
		f.Fatal(err)
	}
	listener := bufconn.Listen(64 << 10)
	kit.Run(f.T, func(ctx context.Context) error { return srv.Serve(ctx, listener) })
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	return plegv1.NewPLEGClient(conn)
}

func (f *fixture) watch(client plegv1.PLEGClient, o pipeline.SubscribeOptions, see func(pleg.Event)) *kit.Subscriber {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := client.Watch(ctx, watchRequest(f.T, o))
	if err != nil {
		f.Fatal(err)
	}
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

func watchRequest(t *testing.T, o pipeline.SubscribeOptions) *plegv1.WatchRequest {
	t.Helper()
	r := &plegv1.WatchRequest{
		Name: o.Name, Buffer: uint32(o.Buffer), Replay: o.Replay, Bookmarks: o.Bookmarks,
		Namespaces: o.Namespaces, LabelSelector: o.Selector,
		OmitSandboxes: o.OmitSandboxes, NetworkEvents: o.NetworkEvents,
	}
	if o.After != (pleg.Position{}) {
		r.ResumeAfter = &plegv1.Position{Epoch: o.After.Epoch, Seq: o.After.Seq}
	}
	for _, typ := range o.Types {
		number, ok := wire.FromEventType(typ)
		if !ok {
			t.Fatalf("no number of event type %q", typ)
		}
		r.Types = append(r.Types, number)
	}
	for _, uid := range o.PodUIDs {
		r.PodUids = append(r.PodUids, string(uid))
	}
	return r
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
		f.step()
		kit.Relist(1)
	}
}

// step makes every pod take a step, which the next list shows.
func (f *fixture) step() {
	for i, uid := range kit.UIDs(livingPods) {
		f.Runtime.Set(uid, podLife[(f.steps+i)%len(podLife)])
	}
	f.steps++
}

// setDelays makes each inspection of a pod take the same time, less than the time
// between two lists.
func (f *fixture) setDelays() {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, uid := range kit.UIDs(livingPods) {
		f.Runtime.SetPodFault(uid, plegtest.Delay(time.Duration(rng.IntN(200))*time.Millisecond))
	}
}

// Events of one pod come in the order in which its states were seen, although
// inspections of different pods overtake each other.
func TestContractOrdered(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		f.setDelays()
		v := f.subscribe(pipeline.SubscribeOptions{})
		f.live(2 * len(podLife))
		kit.Relist(1)
		const life = "Started(/s) Started(c1) Died(c1) Started(c2) Removed(c1) Died(c2) Died(/s) Removed(c2) Removed(/s)"
		got := kit.WordsByPod(v.Events())
		for _, uid := range kit.UIDs(livingPods) {
			if !strings.Contains(got[uid], life) {
				f.Errorf("pod %s: %s\n\twant in it %s", uid, got[uid], life)
			}
		}
	})
}

// For every subscriber, whenever it joins, sequence numbers grow, no event comes twice,
// and each says whose number it has.
func TestContractUnique(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		all := f.subscribe(pipeline.SubscribeOptions{})
		var late []*kit.Subscriber
		for range 3 * len(podLife) {
			f.live(1)
			late = append(late, f.subscribe(pipeline.SubscribeOptions{Replay: true, Bookmarks: true}))
		}
		f.live(3)
		if n := len(all.Events()); n < 100 {
			f.Fatalf("only %d events", n)
		}
		for i, v := range append(late, all) {
			var last uint64
			for _, ev := range v.Events() {
				mark := ev.Type == pleg.Synced || ev.Type == pleg.Bookmark
				if ev.Seq < last || ev.Seq == last && !mark {
					f.Errorf("subscriber %d: %+v after number %d", i, ev, last)
				}
				last = ev.Seq
				if ev.Epoch != f.Epoch() {
					f.Errorf("subscriber %d: %+v has another epoch than %s", i, ev, f.Epoch())
				}
			}
		}
	})
}
