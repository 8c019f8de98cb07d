package faults_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// The number is small here; "make faults" runs more.
var streamSeeds = flag.Uint64("faults.stream-seeds", 1, "number of seeds for each fault of the event stream")

// periodWithEvents is the relist period while the event stream is up.
const periodWithEvents = time.Minute

// follow runs a pipeline that follows the events of a simulated runtime.
func follow(t *testing.T, runtime simruntime.Options, o pipeline.Options) *kit.Simulation {
	t.Helper()
	node, err := simruntime.New(runtime)
	if err != nil {
		t.Fatal(err)
	}
	o.RelistPeriodWithEvents, o.Events = periodWithEvents, pipeline.EventsAuto
	return kit.Simulate(t, node, o, cri.Options{})
}

func setEventFaults(t *testing.T, node *simruntime.Runtime, f simruntime.EventFaults) {
	t.Helper()
	if err := node.SetEventFaults(f); err != nil {
		t.Fatal(err)
	}
}

func lists(h *kit.Simulation) int64 { return h.Node.Stats().RPCs["StreamContainers"].Calls }

// awaitListWithEvents waits until the stream is up and a list has just ended.
func awaitListWithEvents(h *kit.Simulation) {
	time.Sleep(2 * time.Second) // the stream is up
	for before := lists(h); lists(h) == before; {
		time.Sleep(10 * time.Millisecond)
	}
}

type streamFault struct {
	name   string
	faults simruntime.EventFaults
	linger time.Duration
	// all: every event arrives in the end, and no list is needed for it.
	all bool
	// unannounced: lists show changes that no event announced.
	unannounced bool
	actions     int // 400 if zero
	// drops: the runtime's channel overflows.
	drops bool
}

var streamFaults = []streamFault{
	{name: "none", all: true},
	{name: "loss", faults: simruntime.EventFaults{Loss: 0.3}, unannounced: true},
	{name: "all lost", faults: simruntime.EventFaults{Loss: 1}, unannounced: true},
	{name: "duplicates", faults: simruntime.EventFaults{Duplicate: 0.5}, all: true},
	{name: "reordered", faults: simruntime.EventFaults{Reorder: 0.4}},
	// A list may overtake late events and hide that a container ran only for a while.
	{name: "delayed", faults: simruntime.EventFaults{Delay: 700 * time.Millisecond}},
	// As CRI-O does if some client does not read.
	{name: "delayed by a minute", faults: simruntime.EventFaults{Delay: time.Minute}, unannounced: true, actions: 2000, drops: true},
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
		for seed := range *streamSeeds {
			t.Run(fmt.Sprintf("%s, seed %d", tt.name, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { tt.run(t, seed) })
			})
		}
	}
}

func (tt streamFault) run(t *testing.T, seed uint64) {
	h := follow(t, simruntime.Options{Seed: seed, DeletedLinger: tt.linger}, pipeline.Options{})
	awaitListWithEvents(h)
	setEventFaults(t, h.Node, tt.faults)
	before := lists(h)
	h.Churn(seed, max(tt.actions, 400))
	time.Sleep(2*periodWithEvents + 10*time.Second)
	h.RequireTruth()
	if got := kit.Metric(t, h.Metrics, "pleg_missed_events_total"); (got > 0) != tt.unannounced && (tt.unannounced || tt.all) {
		t.Errorf("%v changes were unannounced, want some: %t", got, tt.unannounced)
	}
	if dropped := h.Node.Stats().Events.Dropped; (dropped > 0) != tt.drops {
		t.Errorf("the runtime dropped %d events, want some: %t", dropped, tt.drops)
	}
	if n := lists(h) - before; tt.name == "none" && n > 12 {
		t.Errorf("%d lists of all pods in more than 2 minutes with events, want one a minute and some for dead pods", n)
	}
	h.RequirePromises(promises.Stream{All: tt.all, NoSync: true})
}

// timeToCache makes a pod's container exit and returns how long it takes until the
// cache shows that.
func timeToCache(t *testing.T, h *kit.Simulation, pod simruntime.Pod) time.Duration {
	t.Helper()
	id := pod.Containers[0].ID
	h.Update(func(tx *simruntime.Txn) error { return tx.ExitContainer(id, 7, simruntime.ReasonError) })
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		st, err := h.Cache().Get(pleg.PodUID(pod.UID))
		if c := st.Container(pleg.ContainerID(id)); err == nil && c != nil && c.State == pleg.StateExited {
			return time.Since(began)
		}
		if time.Since(began) > time.Hour {
			t.Fatalf("the exit of %s was not found in an hour", id)
		}
	}
}

const (
	lineDoubted = "event stream is missing changes"
	lineTrusted = "announces all changes again"
)

func requireDoubted(t *testing.T, h *kit.Simulation, want float64) {
	t.Helper()
	if got := kit.Metric(t, h.Metrics, "pleg_event_stream_doubted"); got != want || kit.Metric(t, h.Metrics, "pleg_event_stream_up") != 1 {
		t.Errorf("doubted: %v, want %v, and the stream up", got, want)
	}
}

// If the stream is open but announces no changes, the first list finds that out.
// From then on the pipeline relists as without events, until the stream has proven
// itself.
func TestSilentStreamIsNotReliedOn(t *testing.T) {
	const soon = 1100 * time.Millisecond // the relist period and an inspection
	synctest.Test(t, func(t *testing.T) {
		var log kit.Log
		h := follow(t, simruntime.Options{Seed: 1}, pipeline.Options{Logger: log.Logger()})
		pods := h.Populate(simruntime.Population{Pods: 8, Containers: 1})
		awaitListWithEvents(h)
		if took := timeToCache(t, h, pods[0]); took > 20*time.Millisecond {
			t.Errorf("with events it took %v", took)
		}

		setEventFaults(t, h.Node, simruntime.EventFaults{Loss: 1})
		if took := timeToCache(t, h, pods[1]); took < soon || took > periodWithEvents {
			t.Errorf("the first change took %v: no list of the period found it", took)
		}
		time.Sleep(10 * time.Second)
		requireDoubted(t, h, 1)
		if n := kit.Metric(t, h.Metrics, "pleg_missed_events_total"); n != 1 {
			t.Errorf("%v unannounced changes, want 1", n)
		}
		for i, idle := range []time.Duration{0, 10 * time.Minute} {
			time.Sleep(idle)
			if took := timeToCache(t, h, pods[2+i]); took > soon {
				t.Errorf("%v later a change took %v, want the relist period", idle, took)
			}
		}
		requireDoubted(t, h, 1)
		time.Sleep(10 * time.Second) // until the last change is counted as unannounced

		streamProvesItself(t, h, pods[4])
		log.RequireLines(t, 1, lineDoubted)
		log.RequireLines(t, 1, lineTrusted)

		setEventFaults(t, h.Node, simruntime.EventFaults{Loss: 1})
		timeToCache(t, h, pods[5])
		time.Sleep(10 * time.Second)
		requireDoubted(t, h, 1)
		log.RequireLines(t, 2, lineDoubted)
		h.RequireTruth()
		h.RequirePromises(promises.Stream{NoSync: true})
	})
}

// streamProvesItself makes the stream work again and requires that the pipeline
// relies on it after a while.
func streamProvesItself(t *testing.T, h *kit.Simulation, pod simruntime.Pod) {
	t.Helper()
	setEventFaults(t, h.Node, simruntime.EventFaults{})
	if took := timeToCache(t, h, pod); took > 20*time.Millisecond {
		t.Errorf("an event of a doubted stream took %v", took)
	}
	time.Sleep(11 * time.Minute) // 10 without an unannounced change, and a period
	requireDoubted(t, h, 0)
	before := lists(h)
	time.Sleep(10 * periodWithEvents)
	if n := lists(h) - before; n > 11 {
		t.Errorf("%d lists in 10 periods of a stream that is relied on again", n)
	}
}
