package hints_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// timeToCache makes a pod's container exit and returns how long it takes until the
// cache shows that.
func timeToCache(t *testing.T, h *kit.Simulation, pod simruntime.Pod) time.Duration {
	t.Helper()
	id := pod.Containers[0].ID
	h.Update(func(tx *simruntime.Txn) error { return tx.ExitContainer(id, 7, simruntime.ReasonError) })
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		st, err := h.Cache().Get(pipeline.PodUID(pod.UID))
		if c := st.Container(pleg.ContainerID(id)); err == nil && c != nil && c.State == pleg.StateExited {
			return time.Since(began)
		}
		if time.Since(began) > time.Hour {
			t.Fatalf("the exit of %s was not found in an hour", id)
		}
	}
}

const (
	lineDoubted = "is up but misses changes"
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
		time.Sleep(3 * time.Second)
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
		h.History.Check(t, h.End(), kit.Promise{NoSync: true})
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
	time.Sleep(2 * time.Minute)
	requireDoubted(t, h, 0)
	before := lists(h)
	time.Sleep(10 * periodWithEvents)
	if n := lists(h) - before; n > 11 {
		t.Errorf("%d lists in 10 periods of a stream that is relied on again", n)
	}
}
