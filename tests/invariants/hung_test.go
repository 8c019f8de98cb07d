package invariants_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// timeOfOthers changes the pods of a node. Some of them hang, spread evenly. It returns when the
// last event of the others came.
func timeOfOthers(t *testing.T, hung, inspectors int) (took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		p, events := startNode(t, pipeline.Options{Inspectors: inspectors}, nodePods)
		p.Runtime.SetInspectFault(plegtest.Delay(17 * time.Millisecond)) // as on a node
		for n := range hung {
			p.Runtime.SetPodFault(kit.UIDs(nodePods)[n*nodePods/hung], plegtest.Hang)
		}
		kit.Relist(10)
		began := time.Now()
		kit.Fill(p.Runtime, nodePods, "c=exited")
		for range nodePods - hung {
			<-events
		}
		took = time.Since(began)
	})
	return took
}

func TestHungPodsDelayNoOther(t *testing.T) {
	for _, inspectors := range []int{8, 16} {
		without := timeOfOthers(t, 0, inspectors)
		for hung, most := range map[int]time.Duration{1: without * 13 / 10, 5: without * 13 / 10, 40: 6 * time.Second} {
			t.Run(fmt.Sprintf("%d of 110, %d inspectors", hung, inspectors), func(t *testing.T) {
				if took := timeOfOthers(t, hung, inspectors); took > most {
					t.Errorf("the others took %v, want at most %v; without hung pods %v", took, most, without)
				}
			})
		}
	}
}

// Before any inspection has ended, slow and hung look the same, and a slow runtime must not lose
// inspections. While none ends, the last pod of the queue is inspected first: a healthy pod then
// shows that the first ones hang.
func TestFirstWaveHangs(t *testing.T) {
	for _, tc := range []struct {
		hung, others int
		most         time.Duration
	}{{1, 1, 0}, {15, 1, 0}, {16, 1, time.Second}, {50, 1, time.Second}, {40, 70, 6 * time.Second}} {
		kit.Bubble(t, fmt.Sprint(tc.hung), func(t *testing.T) {
			p := kit.New(t, pipeline.Options{})
			kit.Fill(p.Runtime, tc.hung+tc.others, "c=running")
			for _, uid := range kit.UIDs(tc.hung) {
				p.Runtime.SetPodFault(uid, plegtest.Hang)
			}
			events := p.Events(t, 0)
			began := time.Now()
			p.Start(t)
			for range tc.others {
				<-events
			}
			if took := time.Since(began); took > tc.most {
				t.Errorf("took %v, want at most %v", took, tc.most)
			}
		})
	}
}

// While many pods hang from the start, a healthy pod that comes later is inspected at once, and no
// call is cancelled for it.
func TestLatePodWhileAllHang(t *testing.T) {
	for _, hung := range []int{31, 33, 40, 60} {
		kit.Bubble(t, fmt.Sprint(hung), func(t *testing.T) {
			p := kit.New(t, pipeline.Options{})
			var cancelled atomic.Int64
			kit.Fill(p.Runtime, hung, "c=running")
			for _, uid := range kit.UIDs(hung) {
				p.Runtime.SetPodFault(uid, func(ctx context.Context) error {
					<-ctx.Done()
					cancelled.Add(1)
					return context.Cause(ctx)
				})
			}
			events := p.Events(t, 0)
			p.StartBetweenLists(t)
			time.Sleep(30 * time.Second)
			before := cancelled.Load()
			p.Runtime.SetPodFault("late", func(context.Context) error {
				if n := cancelled.Load() - before; n > 0 {
					t.Errorf("%d calls were cancelled before the pod was inspected", n)
				}
				return nil
			})
			p.Runtime.Set("late", "c=running")
			kit.Relist(1)
			select {
			case ev := <-events:
				if ev.PodUID != "late" {
					t.Errorf("%s of pod %s, want the late one", ev.Type, ev.PodUID)
				}
			default:
				t.Error("no event of the pod with the list that shows it")
			}
		})
	}
}

// The events of a pod that is removed or replaced while its inspection hangs come with the
// list that shows it. A slow inspection still shows that a container ran.
func TestGoneDuringItsInspection(t *testing.T) {
	const gone = "Died(c) Removed(c) Died(/s) Removed(/s)"
	remove := func(rt *plegtest.Runtime) { rt.Remove("hung") }
	for name, tc := range map[string]struct {
		fault          plegtest.Fault
		before, during string // "" for none
		alone          bool
		lists          int // while it hangs
		change         func(rt *plegtest.Runtime)
		within         int // lists
		want           string
	}{
		"removed":                  {plegtest.Hang, "c=running /s=running", "c=running /s=exited", false, 3, remove, 1, gone},
		"removed, on an idle node": {plegtest.Hang, "c=running /s=running", "c=running /s=exited", true, 6, remove, 1, gone},
		"replaced": {plegtest.Hang, "c=running /s=running", "c=running /s=exited", false, 3, func(rt *plegtest.Runtime) {
			rt.SetPodFault("hung", nil)
			rt.Set("hung", "d=running")
		}, 1, gone + " Started(d)"},
		"removed during a slow one": {plegtest.Delay(2500 * time.Millisecond), "", "c=running", true, 1, remove, 4, "Started(c) Died(c) Removed(c)"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			p := kit.New(t, pipeline.Options{})
			p.Runtime.Set("hung", tc.before)
			p.StartBetweenLists(t)
			sub, err := p.Subscribe(pleg.SubscribeOptions{Filter: pleg.Filter{PodUIDs: []pleg.PodUID{"hung"}}})
			kit.Must(t, err)
			p.Runtime.SetPodFault("hung", tc.fault)
			p.Runtime.Set("hung", tc.during)
			for n := range tc.lists {
				kit.Relist(1)
				if !tc.alone {
					kit.Fill(p.Runtime, 3, fmt.Sprintf("c%d=running", n))
				}
			}
			tc.change(p.Runtime)
			asked := time.Now()
			kit.Relist(tc.within)
			if got := plegtest.Words(kit.Read(t, sub)...); got != tc.want {
				t.Errorf("events %q, want %q", got, tc.want)
			}
			if !promises.Fresh(p.Cache(), "hung", asked) {
				t.Error("GetNewerThan still waits")
			}
			if n := p.Runtime.Counts().InFlight; n > 0 {
				t.Errorf("%d inspections are still in flight", n)
			}
		})
	}
}

// If pods wait and no inspection succeeds, the pipeline is not healthy, as the serial
// kubelet would not be.
func TestHealth(t *testing.T) {
	failLate := func(ctx context.Context) error {
		return errors.Join(plegtest.Delay(2*time.Second)(ctx), errors.New("failed late"))
	}
	for name, tc := range map[string]struct {
		hung    int
		fault   plegtest.Fault
		healthy bool
	}{
		"one pod hangs": {1, plegtest.Hang, true}, "two pods hang": {2, plegtest.Hang, false}, "all pods hang": {nodePods, plegtest.Hang, false},
		"two pods fail late": {2, failLate, false}, "two pods fail at once": {2, plegtest.Fail(errInspect), true},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			p, _ := startNode(t, pipeline.Options{}, nodePods)
			var mended atomic.Bool
			for _, uid := range kit.UIDs(tc.hung) {
				p.Runtime.SetPodFault(uid, func(ctx context.Context) error {
					if mended.Load() {
						return nil
					}
					return tc.fault(ctx)
				})
			}
			kit.Fill(p.Runtime, tc.hung, "c=exited")
			time.Sleep(pipeline.DefaultRelistThreshold - time.Second)
			if ok, err := p.Healthy(); !ok {
				t.Errorf("not healthy before the threshold: %v", err)
			}
			time.Sleep(10 * time.Second)
			ok, err := p.Healthy()
			if ok != tc.healthy {
				t.Errorf("healthy: %v (%v), want %v", ok, err, tc.healthy)
			}
			if !ok && !strings.Contains(err.Error(), "ns/name-p0, ns/name-p1") {
				t.Errorf("the error names no pods: %v", err)
			}
			if !ok && tc.hung > 2 && !strings.HasSuffix(err.Error(), fmt.Sprintf(", %d more", tc.hung-3)) {
				t.Errorf("the error does not count the other pods: %v", err)
			}
			mended.Store(true)
			time.Sleep(2 * pipeline.DefaultMaxQuarantine)
			if ok, err := p.Healthy(); !ok {
				t.Errorf("not healthy although nothing waits: %v", err)
			}
		})
	}
}
