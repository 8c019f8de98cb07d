package hints_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// runShortLived starts a container, makes it exit, and removes it, with a pause
// after each step, and returns its id.
func runShortLived(t *testing.T, h *kit.Simulation, uid, name string, code int32, pause time.Duration) pleg.ContainerID {
	t.Helper()
	var id string
	h.Update(func(tx *simruntime.Txn) error {
		c, err := tx.AddContainer(uid, simruntime.ContainerSpec{Name: name})
		id = c.ID
		return err
	})
	time.Sleep(pause)
	h.Update(func(tx *simruntime.Txn) error { return tx.ExitContainer(id, code, simruntime.ReasonError) })
	time.Sleep(pause)
	h.Update(func(tx *simruntime.Txn) error { return tx.RemoveContainer(id) })
	return pleg.ContainerID(id)
}

// Of a container that lives between two relists every step is reported, and its
// final status is available for a while.
func TestShortLivedContainersAreSeenWithEvents(t *testing.T) {
	for name, tt := range map[string]struct{ delay, pause time.Duration }{
		"50 ms":                        {0, 25 * time.Millisecond},
		"no time at all":               {0, 0},
		"events late, and all at once": {300 * time.Millisecond, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { shortLived(t, tt.delay, tt.pause) })
		})
	}
}

func shortLived(t *testing.T, delay, pause time.Duration) {
	h := follow(t, simruntime.Options{Seed: 1}, pipeline.Options{})
	setEventFaults(t, h.Node, simruntime.EventFaults{Delay: delay})
	pods := h.Populate(simruntime.Population{Pods: 1, Containers: 1})
	time.Sleep(2 * time.Second)
	codes := make(map[pleg.ContainerID]int32)
	for i := range int32(5) {
		codes[runShortLived(t, h, pods[0].UID, fmt.Sprint("short-", i), 40+i, pause)] = 40 + i
		time.Sleep(3 * time.Millisecond)
	}
	time.Sleep(time.Second)
	for id, code := range codes {
		if st := h.Cache().GetRemoved(id); st == nil || st.State != pleg.StateExited || st.ExitCode != code || st.Reason != "Error" {
			t.Errorf("the final status of %s is %+v, want exit code %d", id, st, code)
		}
	}
	if n := lists(h); n > 4 { // at the start, for the stream, and 1 and 2 s later
		t.Errorf("%d lists of all pods: the events were not enough", n)
	}
	time.Sleep(time.Minute)
	for id := range codes {
		if st := h.Cache().GetRemoved(id); st != nil {
			t.Errorf("%s is kept longer than a minute: %+v", id, st)
		}
	}
	for _, ev := range h.RequirePromises(promises.Stream{NoSync: true, All: true}) {
		code, short := codes[ev.ContainerID]
		if short && ev.Type == pleg.ContainerDied && (ev.ExitCode == nil || *ev.ExitCode != code || ev.Reason != "Error") {
			t.Errorf("%+v does not have the exit code %d", ev, code)
		}
	}
}

// If the runtime is away for a while, its events are followed again within the
// relist period and the time of a reconnect. A list finds what happened meanwhile.
func TestRuntimeThatComesBackIsFollowedAgain(t *testing.T) {
	for _, outage := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 4 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { comesBack(t, outage) })
		})
	}
}

func comesBack(t *testing.T, outage time.Duration) {
	h := follow(t, simruntime.Options{Seed: 1}, pipeline.Options{})
	pods := h.Populate(simruntime.Population{Pods: 10, Containers: 2})
	for round := range 3 {
		time.Sleep(2 * time.Second)
		if up := kit.Metric(t, h.Metrics, "pleg_event_stream_up"); up != 1 {
			t.Fatalf("round %d: the stream is not up", round)
		}
		h.StopServing()
		h.Update(func(tx *simruntime.Txn) error {
			return errors.Join(tx.ExitContainer(pods[round].Containers[1].ID, 9, simruntime.ReasonError), tx.RemovePod(pods[round+4].UID))
		})
		time.Sleep(outage)
		if up := kit.Metric(t, h.Metrics, "pleg_event_stream_up"); up != 0 {
			t.Errorf("round %d: the stream is up while there is no runtime", round)
		}
		if ok, err := h.Healthy(); ok != (outage < 3*time.Minute) {
			t.Errorf("round %d: healthy: %t, %v after %v", round, ok, err, outage)
		}
		h.Serve()
		time.Sleep(1150 * time.Millisecond)
		h.RequireTruth()
		if ok, err := h.Healthy(); !ok {
			t.Errorf("round %d: not healthy after the return: %v", round, err)
		}
		time.Sleep(10 * time.Second) // the longest wait before a new stream
	}
	h.RequirePromises(promises.Stream{NoSync: true})
}

// A runtime without events, or with events switched off, is relisted as without
// the option.
func TestRuntimeWithoutEventsIsRelisted(t *testing.T) {
	for _, mode := range []simruntime.EventMode{simruntime.EventsEOF, simruntime.EventsUnimplemented} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node, err := simruntime.New(simruntime.Options{Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				setEventFaults(t, node, simruntime.EventFaults{Mode: mode})
				h := followNode(t, node, pipeline.Options{})
				h.Churn(1, 200)
				time.Sleep(2 * time.Second)
				h.RequireTruth()
				stats := h.Node.Stats()
				if n := stats.RPCs["GetContainerEvents"].Calls; n != 1 {
					t.Errorf("the stream was tried %d times in 12 s", n)
				}
				if n := stats.RPCs["StreamContainers"].Calls; n < 11 {
					t.Errorf("%d lists in 12 s", n)
				}
				h.RequirePromises(promises.Stream{NoSync: true})
			})
		})
	}
}

// A node whose list of sandboxes is too large for one message is still listed. It
// is healthy, and Healthy explains what is wrong.
func TestNodeTooLargeToListStaysVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := follow(t, simruntime.Options{Seed: 1, MaxMessageBytes: 64 << 10}, pipeline.Options{Events: pipeline.EventsOff})
		h.Update(func(tx *simruntime.Txn) error {
			for i := range 12 {
				name := fmt.Sprint("heavy-", i)
				if _, err := tx.AddPod(simruntime.PodSpec{
					Name: name, UID: name, Namespace: "default", Containers: []simruntime.ContainerSpec{{Name: "main"}},
					Annotations: map[string]string{"blob": strings.Repeat("x", 16<<10)},
				}); err != nil {
					return err
				}
			}
			return nil
		})
		h.Churn(1, 40)
		time.Sleep(3 * time.Second)
		h.RequireTruth()
		if s := h.Status(); !s.Healthy || s.Err != nil || s.Degraded == nil || !strings.Contains(s.Degraded.Error(), "in portions") {
			t.Errorf("healthy: %t, %v, %v; want true, and what is wrong", s.Healthy, s.Err, s.Degraded)
		}
		h.RequirePromises(promises.Stream{NoSync: true})
	})
}
