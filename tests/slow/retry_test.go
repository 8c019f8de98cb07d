package slow_test

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

// next returns when the next event of the pod came.
func next(t *testing.T, events <-chan pleg.Event, uid pleg.PodUID) time.Time {
	t.Helper()
	for {
		select {
		case ev := <-events:
			if ev.PodUID == uid {
				return time.Now()
			}
		case <-time.After(time.Hour):
			t.Fatalf("no event of pod %s within an hour", uid)
		}
	}
}

// On a node that is never idle, a quarantined pod is still tried.
func TestQuarantinedPodOfABusyNodeIsTried(t *testing.T) {
	for name, tc := range map[string]struct {
		request func(p *pipeline.Pipeline)
		most    time.Duration
	}{
		"without a request": {request: func(*pipeline.Pipeline) {}, most: pipeline.DefaultMaxQuarantine + 5*time.Second},
		"RequestReinspect":  {request: func(p *pipeline.Pipeline) { p.RequestReinspect("sick") }, most: 5 * time.Second},
		"RequestRelist":     {request: func(p *pipeline.Pipeline) { p.RequestRelist("sick") }, most: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const busy = 60
				p := kit.New(t, pipeline.Options{})
				p.Runtime.SetInspectFault(plegtest.Delay(150 * time.Millisecond))
				p.Runtime.Set("sick", "c=running")
				p.Runtime.SetPodFault("sick", plegtest.Hang)
				kit.Fill(p.Runtime, busy, "c=running")
				sub, err := p.Subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{PodUIDs: []pleg.PodUID{"sick"}}})
				if err != nil {
					t.Fatal(err)
				}
				p.StartBetweenLists(t)
				kit.Run(t, func(ctx context.Context) error {
					for n := 0; ctx.Err() == nil; n++ {
						kit.Fill(p.Runtime, busy, fmt.Sprintf("c%d=running", n))
						time.Sleep(pipeline.DefaultRelistPeriod)
					}
					return ctx.Err()
				})
				time.Sleep(10 * time.Minute) // the wait has grown
				p.Runtime.SetPodFault("sick", nil)
				tc.request(p.Pipeline)
				recovered := time.Now()
				if took := next(t, sub.Events(), "sick").Sub(recovered); took > tc.most {
					t.Errorf("told after %v, want at most %v", took, tc.most)
				}
				if _, err := p.Cache().GetNewerThan(t.Context(), "sick", recovered.Add(-time.Minute)); err != nil {
					t.Errorf("GetNewerThan: %v", err)
				}
			})
		})
	}
}

// Inspections that fail late are retried as often as the serial kubelet would.
func TestLateFailuresRecoverSoon(t *testing.T) {
	for _, pods := range []int{1, 30} {
		t.Run(fmt.Sprint(pods), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const slow, ill = 2 * time.Second, 5 * time.Minute
				p := kit.New(t, pipeline.Options{})
				kit.Fill(p.Runtime, pods, "c=running")
				events := p.Events(t, 0)
				p.StartBetweenLists(t)
				kit.Drain(events)
				var fails atomic.Bool
				fails.Store(true)
				p.Runtime.SetInspectFault(func(context.Context) error {
					if !fails.Load() {
						return nil
					}
					time.Sleep(slow)
					return fmt.Errorf("no space left")
				})
				before := calls(p.Runtime)
				kit.Fill(p.Runtime, pods, "c=exited")
				time.Sleep(ill)
				// The serial kubelet makes one call at a time, and pauses for a period
				// after each round.
				serial := int(ill/(time.Duration(pods)*slow+pipeline.DefaultRelistPeriod)) * pods
				if got := calls(p.Runtime) - before; got > serial*11/10+2*pods {
					t.Errorf("%d calls while the runtime failed, want about %d", got, serial)
				}
				fails.Store(false)
				recovered := time.Now()
				for range pods {
					<-events
				}
				if took := time.Since(recovered); took > 10*time.Second {
					t.Errorf("told after %v, want at most 10 s", took)
				}
			})
		})
	}
}

func calls(rt *plegtest.Runtime) int {
	n := 0
	for _, count := range rt.Counts().Inspections {
		n += count
	}
	return n
}

// A pod that is removed or replaced while its inspection hangs is told by the list that
// shows it.
func TestGoneWhileItsInspectionHangs(t *testing.T) {
	for name, tc := range map[string]struct {
		alone  bool
		hangs  time.Duration
		change func(rt *plegtest.Runtime)
		want   string
	}{
		"removed": {hangs: 2 * time.Second, change: func(rt *plegtest.Runtime) { rt.Remove("sick") }, want: "Died(c) Removed(c) Died(/s) Removed(/s)"},
		"removed, on an idle node": {
			alone: true, hangs: 5 * time.Second, change: func(rt *plegtest.Runtime) { rt.Remove("sick") }, want: "Died(c) Removed(c) Died(/s) Removed(/s)",
		},
		"replaced": {hangs: 2 * time.Second, change: func(rt *plegtest.Runtime) {
			rt.SetPodFault("sick", nil)
			rt.Set("sick", "d=running")
		}, want: "Died(c) Removed(c) Died(/s) Removed(/s) Started(d)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := kit.New(t, pipeline.Options{})
				p.Runtime.Set("sick", "c=running /s=running")
				p.StartBetweenLists(t)
				sub, err := p.Subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{PodUIDs: []pleg.PodUID{"sick"}}})
				if err != nil {
					t.Fatal(err)
				}
				p.Runtime.SetPodFault("sick", plegtest.Hang)
				p.Runtime.Set("sick", "c=running /s=exited")
				kit.Relist(1)
				for n := range int(tc.hangs / pipeline.DefaultRelistPeriod) {
					if !tc.alone {
						kit.Fill(p.Runtime, 3, fmt.Sprintf("c%d=running", n))
					}
					kit.Relist(1)
				}
				tc.change(p.Runtime)
				asked := time.Now()
				kit.Relist(1)
				kit.RequireEvents(t, sub.Events(), "sick", tc.want)
				if !promises.Fresh(p.Cache(), "sick", asked) {
					t.Error("GetNewerThan still waits")
				}
				if n := p.Runtime.Counts().InFlight; n > 0 {
					t.Errorf("%d inspections are still in flight", n)
				}
			})
		})
	}
}

// A slow inspection still shows that a container ran, although its pod is gone.
func TestGoneWhileItsInspectionIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		events := p.Events(t, 0)
		p.StartBetweenLists(t)
		p.Runtime.SetPodFault("short", plegtest.Delay(2500*time.Millisecond))
		p.Runtime.Set("short", "c=running")
		kit.Relist(1)
		p.Runtime.Remove("short")
		kit.Relist(4)
		kit.RequireEvents(t, events, "short", "Started(c) Died(c) Removed(c)")
	})
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
		"one pod hangs": {1, plegtest.Hang, true}, "two pods hang": {2, plegtest.Hang, false}, "all pods hang": {110, plegtest.Hang, false},
		"two pods fail late": {2, failLate, false}, "two pods fail at once": {2, plegtest.Fail(errors.New("failed")), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := kit.New(t, pipeline.Options{})
				kit.Fill(p.Runtime, 110, "c=running")
				p.StartBetweenLists(t)
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
				mended.Store(true)
				time.Sleep(2 * pipeline.DefaultMaxQuarantine)
				if ok, err := p.Healthy(); !ok {
					t.Errorf("not healthy although nothing waits: %v", err)
				}
			})
		})
	}
}

// hungLists hangs in the single-pod lists of some pods.
type hungLists struct {
	*plegtest.Runtime
}

func (r hungLists) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	if strings.HasPrefix(string(uid), "sick") {
		return nil, plegtest.Hang(ctx)
	}
	return r.Runtime.ListPod(ctx, uid)
}

// While hung single-pod lists take all places, a list of all pods serves the requests.
func TestHungSinglePodLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		rt.Set("good", "c=running")
		p := kit.New(t, pipeline.Options{
			Runtime: hungLists{rt}, Events: pipeline.EventsRequire,
		})
		events := p.Events(t, 0)
		p.Start(t)
		time.Sleep(time.Hour) // the event stream is trusted, so lists are rare
		for last := rt.Counts().Lists; rt.Counts().Lists == last; {
			kit.Relist(1)
		}
		kit.Drain(events)
		for n := range pipeline.DefaultInspectors {
			p.RequestRelist(pleg.PodUID(fmt.Sprint("sick", n)))
		}
		synctest.Wait()
		rt.Set("good", "c=exited")
		p.RequestRelist("good")
		kit.Relist(1)
		kit.RequireEvents(t, events, "good", "Died(c)")
	})
}
