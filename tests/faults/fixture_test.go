package faults_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
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
	relistThresholdWithEvents = 5 // twice the longest period
	listTimeout               = 2
	inspectTimeout            = 3
	churnEnd                  = 12
)

// streamBatch makes a streamed list of a few pods more than one message, so that
// it can be truncated.
const streamBatch = 10

// fixture is a pipeline on a simulated runtime.
type fixture struct {
	*kit.Simulation
	t        *testing.T
	scenario scenario
	unit     time.Duration
	client   *panickingClient
}

// newFixture runs a pipeline. listen is that of [kit.SimulationOptions].
func newFixture(t *testing.T, s scenario, unit time.Duration, listen func() net.Listener) *fixture {
	t.Helper()
	node, err := simruntime.New(simruntime.Options{Seed: s.seed, StreamBatch: streamBatch})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Populate(simruntime.Population{Pods: s.pods, Containers: s.containers}); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, scenario: s, unit: unit}
	f.Simulation = kit.SimulateWith(t, node, kit.SimulationOptions{
		Options: pipeline.Options{
			// No relist at the moment of a change: if two observations have the same time,
			// neither is newer.
			RelistPeriod: unit + unit/1000,
			Events:       s.mode.events, RelistPeriodWithEvents: relistThresholdWithEvents * unit / 2, RelistThreshold: relistThreshold * unit,
			ListTimeout: listTimeout * unit, InspectTimeout: inspectTimeout * unit,
		},
		CRI: cri.Options{ListTimeout: listTimeout * unit, StatusTimeout: inspectTimeout * unit, ConnectTimeout: unit, UnaryLists: s.mode.unary},
		Wrap: func(client *cri.Client) pleg.Runtime {
			f.client = newPanickingClient(client, s.faults)
			return f.client
		},
		Listen: listen,
	})
	return f
}

// play changes the pods while the faults are played, and then clears the faults.
// At each third change it requests a relist of the pod, at each fourth a
// reinspection.
func (f *fixture) play() {
	f.t.Helper()
	f.History.Record(f.Truth())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var group errgroup.Group
	group.Go(func() error {
		err := f.Node.Play(ctx, slices.DeleteFunc(slices.Clone(f.scenario.faults), panics)...)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
	changes := 0
	err := f.Node.Churn(ctx, simruntime.ChurnOptions{
		Seed: f.scenario.seed, Rate: float64(f.scenario.rate) / f.unit.Seconds(), Pods: f.scenario.pods, Actions: f.scenario.rate * churnEnd,
		Observe: func(podUID string) {
			f.History.Record(f.Truth())
			changes++
			if changes%3 == 0 {
				f.RequestRelist(pleg.PodUID(podUID))
			}
			if changes%4 == 0 {
				f.RequestReinspect(pleg.PodUID(podUID))
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
	for _, rpc := range f.Node.Stats().RPCs {
		n += int(rpc.Spoiled)
	}
	return n
}

// cacheDiff returns how the cache differs from the runtime, empty if it does not.
func (f *fixture) cacheDiff() string {
	return strings.Join(f.Truth().Diff(f.Cache().List()), "\n")
}

// methods are the methods of pleg.Runtime. A fault whose RPC is one of them is
// a panic of that method.
var methods = []string{"ListPods", "PodStatus", "ListPod", "WatchEvents"}

func panics(f simruntime.Fault) bool { return slices.Contains(methods, f.RPC) }

// panickingClient is a client whose methods panic under the faults. WatchEvents
// panics at an event.
type panickingClient struct {
	*cri.Client

	mu     sync.Mutex
	start  time.Time
	faults []*methodFault
	hits   int
}

type methodFault struct {
	simruntime.Fault
	matched, hit int
	rng          *rand.Rand
}

func newPanickingClient(client *cri.Client, faults []simruntime.Fault) *panickingClient {
	c := &panickingClient{Client: client, start: time.Now()}
	for _, f := range faults {
		if panics(f) {
			c.faults = append(c.faults, &methodFault{Fault: f, rng: rand.New(rand.NewPCG(f.Seed, 1))})
		}
	}
	return c
}

func (c *panickingClient) clearFaults() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = nil
}

func (c *panickingClient) panicked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits
}

func (c *panickingClient) panicIfFaulty(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		if f.RPC == method && f.hits(time.Since(c.start)) {
			c.hits++
			panic("injected panic of " + method)
		}
	}
}

func (f *methodFault) hits(now time.Duration) bool {
	if now < f.From || f.Until > 0 && now >= f.Until || f.Times > 0 && f.hit == f.Times {
		return false
	}
	if f.matched++; f.matched <= f.After || f.Probability > 0 && f.rng.Float64() >= f.Probability {
		return false
	}
	f.hit++
	return true
}

func (c *panickingClient) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	c.panicIfFaulty("ListPods")
	return c.Client.ListPods(ctx)
}

func (c *panickingClient) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	c.panicIfFaulty("PodStatus")
	return c.Client.PodStatus(ctx, pod, last)
}

func (c *panickingClient) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	c.panicIfFaulty("ListPod")
	return c.Client.ListPod(ctx, uid)
}

func (c *panickingClient) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	return c.Client.WatchEvents(ctx, opened, func(h pleg.Hint) {
		c.panicIfFaulty("WatchEvents")
		hint(h)
	})
}
