package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// scenario says what happens to a simulated runtime. The seed determines the pods
// and their changes.
type scenario struct {
	seed       uint64
	pods       int
	containers int
	rate       int // changes in a unit
	faults     []simruntime.Fault
	mode       mode
}

// mode is how the pipeline learns of changes.
type mode struct {
	events pipeline.EventsMode
	unary  bool // lists
}

func (m mode) String() string {
	if m.events == pipeline.EventsOff {
		return "polling"
	}
	return "events"
}

var modes = []mode{{events: pipeline.EventsOff}, {events: pipeline.EventsAuto}}

// The times of a scenario in units: a unit is a second on the fake clock, and
// less on the real one.
const (
	relistThreshold           = 3
	relistThresholdWithEvents = 5
	listTimeout               = 2
	inspectTimeout            = 3
	churnEnd                  = 12
)

// streamBatch makes a streamed list of a few pods more than one message, so that
// it can be truncated.
const streamBatch = 10

// fixture is a pipeline on a simulated runtime.
type fixture struct {
	t         *testing.T
	scenario  scenario
	unit      time.Duration
	rt        *simruntime.Runtime
	client    *panickingClient
	pipe      *pipeline.Pipeline
	sub       *pipeline.Subscription
	lifecycle *lifecycle
	stop      context.CancelFunc
	group     errgroup.Group
}

// newFixture runs a pipeline on a runtime that serves on listener.
func newFixture(t *testing.T, s scenario, unit time.Duration, listener net.Listener, dial func(context.Context) (net.Conn, error)) *fixture {
	t.Helper()
	rt, err := simruntime.New(simruntime.Options{Seed: s.seed, StreamBatch: streamBatch})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Populate(simruntime.Population{Pods: s.pods, Containers: s.containers}); err != nil {
		t.Fatal(err)
	}
	client, err := cri.New("/simulated", cri.Options{
		ListTimeout: listTimeout * unit, StatusTimeout: inspectTimeout * unit, ConnectTimeout: unit, UnaryLists: s.mode.unary,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) })},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, scenario: s, unit: unit, rt: rt, client: newPanickingClient(client, s.faults), lifecycle: newLifecycle()}
	f.startPipeline()
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.group.Go(func() error { return unlessCanceled(rt.Serve(ctx, listener)) })
	f.group.Go(func() error { return unlessCanceled(f.pipe.Run(ctx)) })
	return f
}

func (f *fixture) startPipeline() {
	f.t.Helper()
	// No relist at the moment of a change: if two observations have the same time,
	// neither is newer.
	period := f.unit + f.unit/1000
	var err error
	f.pipe, err = pipeline.New(pipeline.Options{
		Runtime: f.client, Events: f.scenario.mode.events,
		RelistPeriod: period, RelistPeriodWithEvents: 4 * period,
		RelistThreshold: relistThreshold * f.unit, RelistThresholdWithEvents: relistThresholdWithEvents * f.unit,
		ListTimeout: listTimeout * f.unit, InspectTimeout: inspectTimeout * f.unit,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if f.sub, err = f.pipe.Subscribe(pipeline.SubscribeOptions{Buffer: 1 << 14}); err != nil {
		f.t.Fatal(err)
	}
}

func unlessCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// play changes the pods while the faults are played, and then clears the faults.
// At each third change it requests a relist of the pod, at each fourth a
// reinspection.
func (f *fixture) play() {
	f.t.Helper()
	f.lifecycle.record(f.rt.Pods())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var group errgroup.Group
	group.Go(func() error {
		ofCalls := slices.DeleteFunc(slices.Clone(f.scenario.faults), panics)
		return unlessCanceled(f.rt.Play(ctx, ofCalls...))
	})
	changes := 0
	err := f.rt.Churn(ctx, simruntime.ChurnOptions{
		Seed: f.scenario.seed, Rate: float64(f.scenario.rate) / f.unit.Seconds(), Pods: f.scenario.pods, Actions: f.scenario.rate * churnEnd,
		Observe: func(a simruntime.Action) {
			f.lifecycle.record(f.rt.Pods())
			changes++
			if changes%3 == 0 {
				f.pipe.RequestRelist(pleg.PodUID(a.PodUID))
			}
			if changes%4 == 0 {
				f.pipe.RequestReinspect(pleg.PodUID(a.PodUID))
			}
		},
	})
	cancel()
	f.client.clearFaults()
	if err := errors.Join(err, group.Wait()); err != nil {
		f.t.Error(err)
	}
}

// spoiledCalls returns the number of calls that a fault has hit.
func (f *fixture) spoiledCalls() int {
	n := f.client.panicked()
	for _, rpc := range f.rt.Stats().RPCs {
		n += int(rpc.Spoiled)
	}
	return n
}

// cacheDiff returns how the cache differs from the runtime, empty if it does not.
func (f *fixture) cacheDiff() string {
	var out strings.Builder
	for _, want := range f.rt.Pods() {
		got, err := f.pipe.Cache().Get(pleg.PodUID(want.UID))
		if err != nil {
			fmt.Fprintf(&out, "pod %s: %v\n", want.UID, err)
			continue
		}
		writePodDiff(&out, got, want)
	}
	for _, e := range f.pipe.Cache().List() {
		if _, ok := f.rt.Pod(string(e.UID)); !ok {
			fmt.Fprintf(&out, "pod %s is gone and in the cache: %+v\n", e.UID, e)
		}
	}
	return out.String()
}

func writePodDiff(out *strings.Builder, got *pleg.PodStatus, want simruntime.Pod) {
	if len(got.Containers) != len(want.Containers) || len(got.Sandboxes) != len(want.Sandboxes) {
		fmt.Fprintf(out, "pod %s has %d containers and %d sandboxes in the cache, want %d and %d\n", want.UID,
			len(got.Containers), len(got.Sandboxes), len(want.Containers), len(want.Sandboxes))
	}
	for _, c := range want.Containers {
		st := got.Container(pleg.ContainerID(c.ID))
		if st == nil || st.State.String() != c.State.String() || st.ExitCode != c.ExitCode || st.Reason != c.Reason || st.Name != c.Name {
			fmt.Fprintf(out, "container %s of %s is %+v in the cache, want %+v\n", c.ID, want.UID, st, c)
		}
	}
	if got.SandboxReady() != want.Sandboxes[0].Ready || got.SandboxReady() && (len(got.IPs) == 0 || got.IPs[0] != want.Sandboxes[0].IPs[0]) {
		fmt.Fprintf(out, "pod %s is ready: %t with %v, want %+v\n", want.UID, got.SandboxReady(), got.IPs, want.Sandboxes[0])
	}
}

// end stops the pipeline and the runtime, and checks the health before and the
// events after.
func (f *fixture) end(p promise) {
	f.t.Helper()
	if ok, err := f.pipe.Healthy(); !ok {
		f.t.Errorf("unhealthy in the end: %v", err)
	}
	f.stop()
	if err := errors.Join(f.group.Wait(), f.client.Close()); err != nil {
		f.t.Errorf("end: %v", err)
	}
	var events []pipeline.Event
	for ev := range f.sub.Events() {
		events = append(events, ev)
	}
	f.lifecycle.check(f.t, events, p)
}
