package pipeline_test

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
)

// live has a container start, exit with a code and be removed, each step so much
// later, and returns its id.
func (h *hinted) live(uid, name string, code int32, step time.Duration) pleg.ContainerID {
	h.t.Helper()
	var id string
	h.update(func(tx *simruntime.Txn) error {
		c, err := tx.AddContainer(uid, simruntime.ContainerSpec{Name: name})
		id = c.ID
		return err
	})
	time.Sleep(step)
	h.update(func(tx *simruntime.Txn) error { return tx.ExitContainer(id, code, simruntime.ReasonError) })
	time.Sleep(step)
	h.update(func(tx *simruntime.Txn) error { return tx.RemoveContainer(id) })
	return pleg.ContainerID(id)
}

// A container that lives between two relists is seen from start to end, and its
// final status can be had for a while.
func TestShortLivedContainersAreSeenWithEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		delay time.Duration
		step  time.Duration
	}{
		"50 ms":                        {0, 25 * time.Millisecond},
		"no time at all":               {0, 0},
		"events late, and all at once": {300 * time.Millisecond, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := follow(t, simruntime.Options{Seed: 1}, pipeline.Options{KeepRemoved: 20 * time.Second})
				if err := h.rt.SetEventFaults(simruntime.EventFaults{Delay: tt.delay}); err != nil {
					t.Fatal(err)
				}
				pods := h.populate(simruntime.Population{Pods: 1, Containers: 1})
				time.Sleep(2 * time.Second)
				codes := make(map[pleg.ContainerID]int32)
				for i := range int32(5) {
					codes[h.live(pods[0].UID, fmt.Sprint("short-", i), 40+i, tt.step)] = 40 + i
					time.Sleep(3 * time.Millisecond)
				}
				time.Sleep(time.Second)
				for id, code := range codes {
					if st := h.pipe.Cache().GetRemoved(id); st == nil || st.State != pleg.StateExited || st.ExitCode != code || st.Reason != "Error" {
						t.Errorf("the final status of %s is %+v, want exit code %d", id, st, code)
					}
				}
				time.Sleep(20 * time.Second)
				for id := range codes {
					if st := h.pipe.Cache().GetRemoved(id); st != nil {
						t.Errorf("%s is kept longer than KeepRemoved: %+v", id, st)
					}
				}
				if lists := h.rt.Stats().RPCs["StreamContainers"].Calls; lists > 3 {
					t.Errorf("%d lists of all pods: the events were not enough", lists)
				}
				checkLives(t, h.events(), codes)
			})
		})
	}
}

func checkLives(t *testing.T, events []pipeline.Event, codes map[pleg.ContainerID]int32) {
	t.Helper()
	lives := make(map[pleg.ContainerID]string)
	for _, ev := range events {
		if _, ok := codes[ev.ContainerID]; !ok {
			continue
		}
		lives[ev.ContainerID] += string(ev.Type) + " "
		if ev.Type == pipeline.ContainerDied {
			if ev.ExitCode == nil || *ev.ExitCode != codes[ev.ContainerID] || ev.Reason != "Error" {
				t.Errorf("%+v has not the exit code %d", ev, codes[ev.ContainerID])
			}
		}
	}
	for id := range codes {
		if want := "ContainerStarted ContainerDied ContainerRemoved "; lives[id] != want {
			t.Errorf("the life of %s: %q, want %q", id, lives[id], want)
		}
	}
}

// A runtime that goes away and comes back is followed again within the relist
// period and the time of a reconnect: what happened meanwhile is found by a list.
func TestRuntimeThatComesBackIsFollowedAgain(t *testing.T) {
	for _, outage := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 4 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := follow(t, simruntime.Options{Seed: 1}, pipeline.Options{})
				pods := h.populate(simruntime.Population{Pods: 10, Containers: 2})
				for round := range 3 {
					time.Sleep(2 * time.Second)
					if up := h.metric("pleg_event_stream_up"); up != 1 {
						t.Fatalf("round %d: the stream is not up", round)
					}
					h.stopServing()
					h.update(func(tx *simruntime.Txn) error {
						return errors.Join(tx.ExitContainer(pods[round].Containers[1].ID, 9, simruntime.ReasonError), tx.RemovePod(pods[round+4].UID))
					})
					time.Sleep(outage)
					if up := h.metric("pleg_event_stream_up"); up != 0 {
						t.Errorf("round %d: the stream is up while there is no runtime", round)
					}
					if ok, err := h.pipe.Healthy(); ok != (outage < 3*time.Minute) {
						t.Errorf("round %d: healthy: %t, %v after %v", round, ok, err, outage)
					}
					h.serve()
					time.Sleep(1150 * time.Millisecond)
					h.wantTruth()
					if ok, err := h.pipe.Healthy(); !ok {
						t.Errorf("round %d: not healthy after the return: %v", round, err)
					}
					time.Sleep(10 * time.Second) // the longest wait before a new stream
				}
				h.ledger.check(t, h.events(), false)
			})
		})
	}
}

// A runtime that has no events, or has them switched off, is relisted as if
// nobody had asked for them; one that demands them says so.
func TestRuntimeWithoutEventsIsRelisted(t *testing.T) {
	for _, mode := range []simruntime.EventMode{simruntime.EventsEOF, simruntime.EventsUnimplemented} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := follow(t, simruntime.Options{Seed: 1}, pipeline.Options{}, simruntime.EventFaults{Mode: mode})
				h.churn(1, 200)
				time.Sleep(2 * time.Second)
				h.wantTruth()
				stats := h.rt.Stats()
				if n := stats.RPCs["GetContainerEvents"].Calls; n != 1 {
					t.Errorf("the stream was tried %d times in 12 s", n)
				}
				if n := stats.RPCs["StreamContainers"].Calls; n < 11 {
					t.Errorf("%d lists in 12 s", n)
				}
				h.ledger.check(t, h.events(), false)
			})
		})
	}
}

// A pod that is gone is reported as removed by the relist that was asked for,
// and not by the next one of all.
func TestRequestOfAPodThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := follow(t, simruntime.Options{Seed: 1}, pipeline.Options{Events: pipeline.EventsOff, RelistPeriod: time.Hour})
		pods := h.populate(simruntime.Population{Pods: 2, Containers: 1})
		time.Sleep(time.Hour + time.Second)
		h.update(func(tx *simruntime.Txn) error { return tx.RemovePod(pods[0].UID) })
		h.pipe.RequestRelist(pleg.PodUID(pods[0].UID))
		synctest.Wait()
		if st, err := h.pipe.Cache().Get(pleg.PodUID(pods[0].UID)); err != nil || len(st.Sandboxes) != 0 {
			t.Errorf("the cache has %+v, %v of a pod that is gone", st, err)
		}
		if n := h.rt.Stats().RPCs["StreamContainers"].Calls; n != 2 {
			t.Errorf("%d lists of all pods, want the two of the period", n)
		}
		h.ledger.check(t, h.events(), true)
	})
}

// A node whose list of sandboxes is too large to send stays visible, and says
// what is wrong although it is healthy.
func TestNodeTooLargeToListStaysVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := follow(t, simruntime.Options{Seed: 1, MaxMessageBytes: 64 << 10}, pipeline.Options{Events: pipeline.EventsOff})
		h.update(func(tx *simruntime.Txn) error {
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
		h.churn(1, 40)
		time.Sleep(3 * time.Second)
		h.wantTruth()
		if ok, err := h.pipe.Healthy(); !ok || err == nil || !strings.Contains(err.Error(), "in portions") {
			t.Errorf("healthy: %t, %v; want true, and what is wrong", ok, err)
		}
		h.ledger.check(t, h.events(), false)
	})
}
