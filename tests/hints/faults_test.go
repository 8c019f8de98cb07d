// Package hints_test tests a pipeline that follows the CRI events of a simulated
// runtime: whatever the events are worth, the pipeline ends up with the truth.
package hints_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The numbers are small here; "make faults" runs more.
var (
	seeds       = flag.Uint64("hints.seeds", 1, "number of seeds for each fault of the event stream")
	floodEvents = flag.Int("hints.flood", 10_000, "number of events in a flood")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// periodWithEvents is the relist period while the event stream is up.
const periodWithEvents = time.Minute

// follow runs a pipeline that follows the events of a simulated runtime.
func follow(t *testing.T, runtime simruntime.Options, o pipeline.Options, dial ...grpc.DialOption) *kit.Simulation {
	t.Helper()
	node, err := simruntime.New(runtime)
	if err != nil {
		t.Fatal(err)
	}
	return followNode(t, node, o, dial...)
}

func followNode(t *testing.T, node *simruntime.Runtime, o pipeline.Options, dial ...grpc.DialOption) *kit.Simulation {
	t.Helper()
	o.RelistPeriodWithEvents = periodWithEvents
	if o.Events == "" {
		o.Events = pipeline.EventsAuto
	}
	return kit.Simulate(t, node, o, dial...)
}

func setEventFaults(t *testing.T, node *simruntime.Runtime, f simruntime.EventFaults) {
	t.Helper()
	if err := node.SetEventFaults(f); err != nil {
		t.Fatal(err)
	}
}

func lists(h *kit.Simulation) int64 { return h.Node.Stats().RPCs["StreamContainers"].Calls }

type streamFault struct {
	name   string
	faults simruntime.EventFaults
	linger time.Duration
	// all: every event arrives in the end, and no list is needed for it.
	all bool
	// unannounced: lists show changes that no event announced.
	unannounced bool
}

var streamFaults = []streamFault{
	{name: "none", all: true},
	{name: "loss", faults: simruntime.EventFaults{Loss: 0.3}, unannounced: true},
	{name: "all lost", faults: simruntime.EventFaults{Loss: 1}, unannounced: true},
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
}

// Whatever is wrong with the event stream, the cache has the truth once a list has
// had time to correct it.
func TestEventStreamFaultsCostNoTruth(t *testing.T) {
	for _, tt := range streamFaults {
		for seed := range *seeds {
			t.Run(fmt.Sprintf("%s, seed %d", tt.name, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { tt.run(t, seed) })
			})
		}
	}
}

func (tt streamFault) run(t *testing.T, seed uint64) {
	h := follow(t, simruntime.Options{Seed: seed, DeletedLinger: tt.linger}, pipeline.Options{})
	setEventFaults(t, h.Node, tt.faults)
	time.Sleep(2 * time.Second) // the stream is up
	h.Churn(seed, 400)
	time.Sleep(2*periodWithEvents + 10*time.Second)
	h.RequireTruth()
	if got := kit.Metric(t, h.Metrics, "pleg_missed_events_total"); (got > 0) != tt.unannounced && (tt.unannounced || tt.all) {
		t.Errorf("%v changes were unannounced, want some: %t", got, tt.unannounced)
	}
	if n := lists(h); tt.name == "none" && n > 6 {
		t.Errorf("%d lists of all pods in 2 minutes with events, want one at the start, one for the stream, and one a minute", n)
	}
	h.History.Check(t, h.End(), kit.Promise{All: tt.all, NoSync: true})
}
