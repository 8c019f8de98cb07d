package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// hinted is a pipeline that follows the events of a simulated runtime, what a
// subscriber got of it, and what was really done.
type hinted struct {
	t       *testing.T
	rt      *simruntime.Runtime
	pipe    *pipeline.Pipeline
	metrics *prometheus.Registry
	sub     *pipeline.Subscription
	ledger  *ledger

	listener    atomic.Pointer[bufconn.Listener]
	stopServing func()
	end         func()
}

// hintedPeriod is the relist period while the stream is up.
const hintedPeriod = time.Minute

// follow runs a pipeline on a simulated runtime in the bubble of t.
func follow(t *testing.T, runtime simruntime.Options, opts pipeline.Options, faults ...simruntime.EventFaults) *hinted {
	t.Helper()
	return followOver(t, runtime, opts, nil, faults...)
}

// followOver is follow with options of the client's connections.
func followOver(t *testing.T, runtime simruntime.Options, opts pipeline.Options, dial []grpc.DialOption, faults ...simruntime.EventFaults) *hinted {
	t.Helper()
	rt, err := simruntime.New(runtime)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		if err := rt.SetEventFaults(f); err != nil {
			t.Fatal(err)
		}
	}
	h := &hinted{t: t, rt: rt, metrics: prometheus.NewPedanticRegistry(), ledger: newLedger()}
	client, err := cri.New("/in-memory", cri.Options{DialOptions: append(dial, grpc.WithContextDialer(h.dial))})
	if err != nil {
		t.Fatal(err)
	}
	opts.Runtime, opts.Registerer, opts.RelistPeriodWithEvents = client, h.metrics, hintedPeriod
	if opts.Events == "" {
		opts.Events = pipeline.EventsAuto
	}
	if h.pipe, err = pipeline.New(opts); err != nil {
		t.Fatal(err)
	}
	if h.sub, err = h.pipe.Subscribe(pipeline.SubscribeOptions{Buffer: 1 << 16}); err != nil {
		t.Fatal(err)
	}
	h.serve()
	h.run(client)
	return h
}

func (h *hinted) dial(ctx context.Context, _ string) (net.Conn, error) {
	if listener := h.listener.Load(); listener != nil {
		return listener.DialContext(ctx)
	}
	return nil, errors.New("connection refused")
}

// serve serves the runtime until stopServing is called.
func (h *hinted) serve() {
	listener := bufconn.Listen(1 << 20)
	h.listener.Store(listener)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.rt.Serve(ctx, listener) }()
	h.stopServing = func() {
		h.listener.Store(nil)
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			h.t.Errorf("serve: %v", err)
		}
	}
}

// run runs the pipeline until end is called, or the test ends.
func (h *hinted) run(client *cri.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- h.pipe.Run(ctx) }()
	h.end = sync.OnceFunc(func() {
		cancel()
		err := <-ran
		h.stopServing()
		if closing := client.Close(); !errors.Is(err, context.Canceled) || closing != nil {
			h.t.Errorf("end: %v, %v", err, closing)
		}
	})
	h.t.Cleanup(h.end)
	synctest.Wait()
}

// update changes the runtime, and notes what every step of it did.
func (h *hinted) update(change func(*simruntime.Txn) error) {
	h.t.Helper()
	h.rt.Update(func(tx *simruntime.Txn) {
		if err := change(tx); err != nil {
			h.t.Fatal(err)
		}
	})
	h.ledger.note(h.rt.Pods())
}

// populate adds pods, and notes them.
func (h *hinted) populate(p simruntime.Population) []simruntime.Pod {
	h.t.Helper()
	pods, err := h.rt.Populate(p)
	if err != nil {
		h.t.Fatal(err)
	}
	h.ledger.note(h.rt.Pods())
	return pods
}

// churn does so many random actions, 20 each second, and notes all of them.
func (h *hinted) churn(seed uint64, actions int) {
	h.t.Helper()
	err := h.rt.Churn(h.t.Context(), simruntime.ChurnOptions{
		Seed: seed, Rate: 20, Pods: 12, Actions: actions, Observe: func(simruntime.Action) { h.ledger.note(h.rt.Pods()) },
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// events returns all events of the run, which is over then.
func (h *hinted) events() []pipeline.Event {
	h.end()
	var all []pipeline.Event
	for ev := range h.sub.Events() {
		all = append(all, ev)
	}
	return all
}

// metric returns the value of a counter or gauge.
func (h *hinted) metric(name string) float64 {
	h.t.Helper()
	families, err := h.metrics.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	h.t.Fatalf("no metric %s", name)
	return 0
}

// wantTruth demands that the cache has what the runtime has.
func (h *hinted) wantTruth() {
	h.t.Helper()
	for _, want := range h.rt.Pods() {
		got, err := h.pipe.Cache().Get(pipeline.PodUID(want.UID))
		if err != nil {
			h.t.Errorf("pod %s: %v", want.UID, err)
			continue
		}
		if len(got.Containers) != len(want.Containers) || len(got.Sandboxes) != len(want.Sandboxes) {
			h.t.Errorf("pod %s has %d containers and %d sandboxes in the cache, want %d and %d", want.UID,
				len(got.Containers), len(got.Sandboxes), len(want.Containers), len(want.Sandboxes))
		}
		for _, c := range want.Containers {
			st := got.Container(pleg.ContainerID(c.ID))
			if st == nil || st.State.String() != c.State.String() || st.ExitCode != c.ExitCode || st.Reason != c.Reason {
				h.t.Errorf("container %s of %s is %+v in the cache, want %+v", c.ID, want.UID, st, c)
			}
		}
	}
	for uid := range h.ledger.pods {
		if _, ok := h.rt.Pod(uid); ok {
			continue
		}
		if st, err := h.pipe.Cache().Get(pipeline.PodUID(uid)); err != nil || len(st.Containers)+len(st.Sandboxes) > 0 {
			h.t.Errorf("pod %s is gone and in the cache: %+v, %v", uid, st, err)
		}
	}
}

// ledger is what containers and sandboxes there ever were.
type ledger struct {
	pods map[string]bool
	life map[pleg.ContainerID]*life
}

// life is how far a container or sandbox has come: 1 runs, 2 has exited, 3 is
// removed.
type life struct {
	stage int
	code  int32
}

func newLedger() *ledger {
	return &ledger{pods: make(map[string]bool), life: make(map[pleg.ContainerID]*life)}
}

func (l *ledger) note(pods []simruntime.Pod) {
	seen := make(map[pleg.ContainerID]bool)
	note := func(id string, stage int, code int32) {
		seen[pleg.ContainerID(id)] = true
		l.life[pleg.ContainerID(id)] = &life{stage, code}
	}
	for _, p := range pods {
		l.pods[p.UID] = true
		for _, s := range p.Sandboxes {
			note(s.ID, map[bool]int{true: 1, false: 2}[s.Ready], 0)
		}
		for _, c := range p.Containers {
			note(c.ID, map[simruntime.State]int{simruntime.Running: 1, simruntime.Exited: 2}[c.State], c.ExitCode)
		}
	}
	for id, was := range l.life {
		if !seen[id] {
			was.stage = 3
		}
	}
}

var stages = map[pipeline.EventType]int{
	pipeline.ContainerStarted: 1, pipeline.ContainerDied: 2, pipeline.ContainerRemoved: 3,
}

// check demands that each container's events are in order, that none comes
// twice, and that they go as far as its life did. With all, none may be missing.
func (l *ledger) check(t *testing.T, events []pipeline.Event, all bool) {
	t.Helper()
	reached := make(map[pleg.ContainerID]int)
	count := make(map[pleg.ContainerID]int)
	for _, ev := range events {
		stage, ok := stages[ev.Type]
		if !ok {
			if ev.Type == pipeline.PodSync {
				t.Errorf("a repair that nothing explains: %+v", ev)
			}
			continue
		}
		if stage <= reached[ev.ContainerID] {
			t.Errorf("event %+v after one of stage %d", ev, reached[ev.ContainerID])
		}
		if l.life[ev.ContainerID] == nil {
			t.Errorf("event of a container that never was: %+v", ev)
		}
		reached[ev.ContainerID] = stage
		count[ev.ContainerID]++
	}
	for id, life := range l.life {
		switch {
		case reached[id] != life.stage && (all || reached[id] != 0 || life.stage != 3):
			t.Errorf("the events of %s go to stage %d, its life to %d", id, reached[id], life.stage)
		case all && count[id] != life.stage:
			t.Errorf("%d events of %s, which came to stage %d", count[id], id, life.stage)
		}
	}
}

// TestEventStreamFaultsCostNoTruth has a pipeline follow event streams that are
// bad in all ways, and demands the truth once a list has had time to mend it.
func TestEventStreamFaultsCostNoTruth(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults simruntime.EventFaults
		linger time.Duration
		// all is set where every event arrives in the end, lists where none is
		// needed.
		all, missed bool
	}{
		{name: "none", all: true},
		{name: "loss", faults: simruntime.EventFaults{Loss: 0.3}, missed: true},
		{name: "all lost", faults: simruntime.EventFaults{Loss: 1}, missed: true},
		{name: "duplicates", faults: simruntime.EventFaults{Duplicate: 0.5}, all: true},
		{name: "reordered", faults: simruntime.EventFaults{Reorder: 0.4}},
		{name: "delayed", faults: simruntime.EventFaults{Delay: 700 * time.Millisecond}, all: true},
		{name: "old ones replayed", faults: simruntime.EventFaults{Replay: 1000, BreakAfter: 1100}, all: true},
		{name: "breaks", faults: simruntime.EventFaults{BreakAfter: 40}},
		{name: "sandboxes linger", linger: 4 * time.Millisecond, all: true},
		{
			name: "all at once", linger: 4 * time.Millisecond,
			faults: simruntime.EventFaults{Loss: 0.1, Duplicate: 0.2, Reorder: 0.2, Delay: 30 * time.Millisecond, Replay: 30, BreakAfter: 200},
		},
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s, seed %d", tt.name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := follow(t, simruntime.Options{Seed: seed, DeletedLinger: tt.linger}, pipeline.Options{})
					if err := h.rt.SetEventFaults(tt.faults); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Second) // the stream is up
					h.churn(seed, 400)
					time.Sleep(2*hintedPeriod + 10*time.Second)
					h.wantTruth()
					if got := h.metric("pleg_missed_events_total"); (got > 0) != tt.missed && (tt.missed || tt.all) {
						t.Errorf("%v events were counted as missed, want some: %t", got, tt.missed)
					}
					if n := h.rt.Stats().RPCs["StreamContainers"].Calls; tt.name == "none" && n > 6 {
						t.Errorf("%d lists of all pods in 2 minutes with events, want one at first, one for the stream, and one a minute", n)
					}
					h.ledger.check(t, h.events(), tt.all)
				})
			})
		}
	}
}
