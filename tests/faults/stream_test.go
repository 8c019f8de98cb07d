package faults_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// "make test" runs one seed, "make faults" more.
var streamSeeds = flag.Uint64("faults.stream-seeds", 1, "number of seeds for each fault of the event stream")

// periodWithEvents is the relist period while the event stream is up.
const periodWithEvents = time.Minute

func lists(t *testing.T, h *kit.Simulation) float64 {
	t.Helper()
	return kit.Metric(t, h.Metrics, "pleg_relist_duration_seconds")
}

type streamFault struct {
	name   string
	fault  simruntime.Fault // of GetContainerEvents
	linger time.Duration
	// all: every event arrives in the end, and no list of all pods is needed for it.
	all bool
	// lossy: lists of all pods find the changes that no event announced.
	lossy   bool
	actions int // 200 if zero
	// drops: the runtime's channel overflows, or no stream is open.
	drops bool
}

var streamFaults = []streamFault{
	{name: "none", all: true},
	{name: "loss", fault: simruntime.Fault{Loss: 0.5}, lossy: true},
	{name: "all lost", fault: simruntime.Fault{Loss: 1}, lossy: true},
	// A list may overtake late events and hide that a container ran only for a while.
	{name: "delayed", fault: simruntime.Fault{Latency: 700 * time.Millisecond}},
	// As CRI-O does if some client does not read.
	{name: "delayed by a minute", fault: simruntime.Fault{Latency: time.Minute}, lossy: true, actions: 1000, drops: true},
	{name: "breaks", fault: simruntime.Fault{Messages: 40, Code: codes.Unavailable}, drops: true},
	{name: "sandboxes linger", linger: 4 * time.Millisecond, all: true},
	{
		name: "all at once", linger: 4 * time.Millisecond, drops: true,
		fault: simruntime.Fault{Loss: 0.1, Latency: 30 * time.Millisecond, Messages: 200, Code: codes.Unavailable},
	},
}

// Whatever is wrong with the event stream, the cache is right once a list has
// had time to correct it.
func TestEventStreamFaultsCostNoTruth(t *testing.T) {
	for _, tt := range streamFaults {
		for seed := range *streamSeeds {
			t.Run(fmt.Sprintf("%s, seed %d", tt.name, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { tt.run(t, seed) })
			})
		}
	}
}

func (tt streamFault) run(t *testing.T, seed uint64) {
	tt.fault.RPC = "GetContainerEvents"
	node := simruntime.New(simruntime.Options{Seed: seed, DeletedLinger: tt.linger, Faults: []simruntime.Fault{tt.fault}})
	h := kit.Simulate(t, node, pipeline.Options{Events: pipeline.EventsAuto, RelistPeriodWithEvents: periodWithEvents}, cri.Options{})
	time.Sleep(2 * time.Second) // the stream is up
	listed := func() int64 { return node.Stats().RPCs["ListContainers"].Calls }
	for opened := listed(); listed() == opened; { // until a list has just ended; to gather metrics takes long
		time.Sleep(10 * time.Millisecond)
	}
	before, found := lists(t, h), kit.Metric(t, h.Metrics, "pleg_changes_total", "all")
	h.Churn(seed, max(tt.actions, 200))
	time.Sleep(2*periodWithEvents + 10*time.Second)
	late := kit.Metric(t, h.Metrics, "pleg_changes_total", "all") - found
	if tt.lossy && late == 0 || tt.all && late > 0 {
		t.Errorf("lists of all pods found %v changes; the stream is lossy: %t", late, tt.lossy)
	}
	if broke := kit.Metric(t, h.Metrics, "pleg_event_stream_breaks_total"); (broke > 0) != (tt.fault.Messages > 0) {
		t.Errorf("%v streams broke, want some: %t", broke, tt.fault.Messages > 0)
	}
	if dropped := h.Node.Stats().DroppedEvents; (dropped > 0) != tt.drops {
		t.Errorf("the runtime dropped %d events, want some: %t", dropped, tt.drops)
	}
	if n := lists(t, h) - before; tt.name == "none" && n > 12 {
		t.Errorf("%v lists of all pods in more than 2 minutes with events, want one a minute and some for dead pods", n)
	}
	h.RequirePromises(promises.Stream{All: tt.all, NoSync: true})
}
