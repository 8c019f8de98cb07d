package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func TestInvariantNeverBlocks(t *testing.T) {
	const sleepers, pods = 50, 20
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{})
		for range sleepers {
			r.subscribe(t, 1) // and never read
		}
		events := r.subscribe(t, 0)
		r.run(t)
		for n := range 10 {
			var want []string
			for p := range pods {
				uid := fmt.Sprint(p)
				words, told := "c=running", "Started(c)"
				if n%2 == 1 {
					words, told = "c=exited", "Died(c)"
				}
				r.node.set(pleg.PodUID(uid), words)
				want = append(want, uid, told)
			}
			r.relist()
			requireTold(t, events, want...)
		}
		if _, listed := r.node.calls("0"); listed != 11 {
			t.Errorf("lists = %d, want 11: one a second", listed)
		}
		if err := r.stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
	})
}

func TestInvariantNothingSilentlyLost(t *testing.T) {
	const pods, buffer = 10, 5
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{})
		slow, quick := r.subscribe(t, buffer), r.subscribe(t, 0)
		r.run(t)
		published := make(map[pleg.PodUID]uint64)
		for n := range 6 {
			for p := range pods {
				state := []string{"running", "exited"}[n%2]
				r.node.set(pleg.PodUID(fmt.Sprint(p)), "c="+state)
			}
			r.relist()
			for _, ev := range drain(quick) {
				published[ev.PodUID]++
			}
		}
		repairs := make(map[pleg.PodUID]int)
		var seq uint64
		for n := 0; ; n++ {
			time.Sleep(20 * time.Millisecond) // it is noticed that the subscriber reads again
			synctest.Wait()
			if len(slow) == 0 {
				break
			}
			ev := <-slow
			if ev.Seq <= seq {
				t.Errorf("event %d has number %d after %d", n, ev.Seq, seq)
			}
			seq = ev.Seq
			if ev.Missed == 0 {
				published[ev.PodUID]--
				continue
			}
			if ev.Type != pleg.PodSync {
				t.Errorf("event %+v stands for others, want a PodSync", ev)
			}
			published[ev.PodUID] -= ev.Missed
			repairs[ev.PodUID]++
		}
		for p := range pods {
			uid := pleg.PodUID(fmt.Sprint(p))
			if published[uid] != 0 || repairs[uid] != 1 {
				t.Errorf("pod %s: %d events unaccounted for and %d repairs, want 0 and 1", uid, int64(published[uid]), repairs[uid])
			}
		}
		r.node.set("0", "d=running c=exited")
		r.relist()
		requireTold(t, slow, "0", "Started(d)")
	})
}

// fidelitySteps are what the runtime has at each relist, and which inspections
// fail then.
var fidelitySteps = []struct {
	pods  map[pleg.PodUID]string
	fails []pleg.PodUID
}{
	{pods: map[pleg.PodUID]string{"a": "c1=running c0=created /s=running", "b": "c=running"}},
	{pods: map[pleg.PodUID]string{"a": "c1=running c0=running /s=running", "b": "c=exited", "n": "c=running"}, fails: []pleg.PodUID{"b", "n"}},
	{pods: map[pleg.PodUID]string{"a": "d1=running d0=running c1=exited c0=exited /s=running", "b": "c=running"}, fails: []pleg.PodUID{"a"}},
	{pods: map[pleg.PodUID]string{"a": "d1=exited d0=running c1=exited /s=running", "b": "c=running", "n": "c=running"}},
	{pods: map[pleg.PodUID]string{"a": "d1=exited d0=unknown /t=running /s=exited", "n": "c=running /s=exited"}},
	{pods: map[pleg.PodUID]string{"a": "d1=exited /t=exited", "b": "x=exited y=created"}, fails: []pleg.PodUID{"a"}},
	{pods: map[pleg.PodUID]string{"b": "y=running"}},
	{pods: map[pleg.PodUID]string{}},
}

// play has the node go through the steps; relist is called at each.
func play(n *node, relist func()) {
	for _, step := range fidelitySteps {
		for _, uid := range []pleg.PodUID{"a", "b", "n"} {
			n.on(uid, nil)
			if words, ok := step.pods[uid]; ok {
				n.set(uid, words)
			} else {
				n.remove(uid)
			}
		}
		for _, uid := range step.fails {
			n.on(uid, failing(errInspect))
		}
		relist()
	}
}

// detailed are the words of events and the exit codes in them.
func detailed(events []pleg.Event) string {
	words := ""
	for _, ev := range events {
		words += plegtest.Words(ev)
		if ev.ExitCode != nil {
			words += fmt.Sprintf("=%d,%s", *ev.ExitCode, ev.Reason)
		}
		words += " "
	}
	return words
}

func eventsByPod(events []pleg.Event) map[pleg.PodUID][]pleg.Event {
	pods := make(map[pleg.PodUID][]pleg.Event)
	for _, ev := range events {
		pods[ev.PodUID] = append(pods[ev.PodUID], ev)
	}
	return pods
}

func TestInvariantFidelity(t *testing.T) {
	for _, inspectors := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("inspectors=%d", inspectors), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := make(chan pleg.Event, 1000)
				n := newNode()
				reference, err := serial.New(n, serial.Options{Events: out})
				if err != nil {
					t.Fatalf("New: %v", err)
				}
				play(n, func() {
					if err := reference.Relist(t.Context()); err != nil {
						t.Fatalf("Relist: %v", err)
					}
				})
				r := newRig(t, pipeline.Options{Inspectors: inspectors})
				events := r.subscribe(t, 1000)
				r.run(t)
				play(r.node, r.relist)

				got, want := eventsByPod(drain(events)), eventsByPod(drain(out))
				for _, uid := range []pleg.PodUID{"a", "b", "n"} {
					if got, want := detailed(got[uid]), detailed(want[uid]); got != want || want == "" {
						t.Errorf("events of pod %s:\n\tpipeline %s\n\tserial   %s", uid, got, want)
					}
				}
			})
		})
	}
}
