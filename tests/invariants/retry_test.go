package invariants_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// On a node that is never idle, a quarantined pod is still tried, and soon on request or if a hint comes.
func TestQuarantinedPodOfABusyNodeIsTried(t *testing.T) {
	const (
		inspectors    = 8
		busy          = 80 // pods that change each second: more than 8 inspectors can do, so that some always wait
		timeout, wait = 10 * time.Second, 30 * time.Second
	)
	for name, tc := range map[string]struct {
		events  pipeline.EventsMode
		request func(p *kit.Pipeline)
		most    time.Duration
	}{
		"without a request": {"", func(*kit.Pipeline) {}, wait + 5*time.Second},
		"RequestReinspect":  {"", func(p *kit.Pipeline) { p.RequestReinspect("hung") }, 5 * time.Second},
		"RequestRelist":     {"", func(p *kit.Pipeline) { p.RequestRelist("hung") }, 5 * time.Second},
		"a hint":            {pipeline.EventsAuto, func(p *kit.Pipeline) { p.Runtime.Announce("hung", "c") }, 5 * time.Second},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			rt := plegtest.New()
			p := kit.New(t, pipeline.Options{
				Runtime: rt, Inspectors: inspectors, InspectTimeout: timeout, MaxQuarantine: wait,
				Events: tc.events, RelistPeriodWithEvents: pipeline.DefaultRelistPeriod, // otherwise the node is idle between lists
			})
			p.Runtime = rt
			p.Runtime.SetInspectFault(plegtest.Delay(225 * time.Millisecond))
			p.Runtime.Set("hung", "c=running")
			p.Runtime.SetPodFault("hung", plegtest.Hang)
			kit.Fill(p.Runtime, busy, "c=running")
			p.StartBetweenLists(t)
			kit.Run(t, func(ctx context.Context) error {
				for n := 0; ctx.Err() == nil; n++ {
					kit.Fill(p.Runtime, busy, fmt.Sprintf("c%d=exited", n)) // an end that a list shows waits for no event
					time.Sleep(pipeline.DefaultRelistPeriod)
				}
				return ctx.Err()
			})
			time.Sleep(timeout + wait + timeout) // the pod has hung twice
			for time.Until(p.Look().Quarantined[0].NextTry) < 6*time.Second {
				time.Sleep(time.Second)
			}
			p.Runtime.SetPodFault("hung", nil)
			recovered := time.Now()
			tc.request(p)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if _, err := p.Cache().GetNewerThan(ctx, "hung", recovered); err != nil {
				t.Errorf("GetNewerThan: %v", err)
			}
			if took := time.Since(recovered); took > tc.most {
				t.Errorf("inspected after %v, want at most %v", took, tc.most)
			}
		})
	}
}

// No quarantined pod waits longer for its next try than MaxQuarantine and one list. This also holds
// on an idle node, where nothing shows that retries hang. (If 100 of 110 hang, they take all slots
// before one is overtaken: then it takes two or three minutes more.)
func TestQuarantinedPodsAreTriedInTime(t *testing.T) {
	for _, tc := range []struct{ hung, inspectors int }{{1, 8}, {5, 8}, {16, 8}, {40, 8}, {1, 1}, {5, 1}, {16, 1}, {19, 1}, {28, 1}} {
		hung := tc.hung
		kit.Bubble(t, fmt.Sprintf("%d, %d inspectors", hung, tc.inspectors), func(t *testing.T) {
			p, _ := startNode(t, pipeline.Options{Inspectors: tc.inspectors, RelistPeriod: 5 * time.Second}, nodePods)
			p.Runtime.SetInspectFault(plegtest.Delay(20 * time.Millisecond))
			var mu sync.Mutex
			var longest time.Duration
			for _, uid := range kit.UIDs(hung) {
				var ended time.Time
				p.Runtime.SetPodFault(uid, func(ctx context.Context) error {
					mu.Lock()
					if !ended.IsZero() {
						longest = max(longest, time.Since(ended))
					}
					mu.Unlock()
					<-ctx.Done()
					mu.Lock()
					ended = time.Now()
					mu.Unlock()
					return ctx.Err()
				})
			}
			kit.Fill(p.Runtime, nodePods, "c=exited")
			time.Sleep(6 * pipeline.DefaultMaxQuarantine)
			mu.Lock()
			defer mu.Unlock()
			if most := pipeline.DefaultMaxQuarantine + 10*time.Second; longest > most || longest == 0 {
				t.Errorf("a pod waited for %v, want at most %v", longest, most)
			}
		})
	}
}

// A runtime that was stuck until every pod was in quarantine recovers. If it then answers as before, all pods
// are known within ten seconds, without waiting for one another. If it takes longer than the timeout of a first
// retry, pods become known at the serial pace.
func TestRecoversFromAStuckRuntime(t *testing.T) {
	for _, tc := range []struct {
		pods, inspectors     int
		stuck, takes, within time.Duration
	}{
		{pods: nodePods, inspectors: 8, stuck: 5 * time.Minute, takes: 400 * time.Millisecond, within: 10 * time.Second},
		{pods: nodePods / 2, inspectors: 8, stuck: 15 * time.Minute, takes: 15 * time.Second, within: nodePods / 2 * 15 * time.Second},
		{pods: 16, inspectors: 1, stuck: 15 * time.Minute, takes: 15 * time.Second, within: nodePods / 2 * 15 * time.Second},
	} {
		kit.Bubble(t, fmt.Sprintf("%d pods, %d inspectors, %v", tc.pods, tc.inspectors, tc.takes), func(t *testing.T) {
			p, recovered := kit.New(t, pipeline.Options{Inspectors: tc.inspectors}), make(chan struct{})
			kit.Fill(p.Runtime, tc.pods, "c=running")
			p.Runtime.SetInspectFault(func(ctx context.Context) error {
				select {
				case <-recovered:
					return plegtest.Delay(tc.takes)(ctx)
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			events := p.Events(t, tc.pods)
			p.Start(t)
			time.Sleep(tc.stuck)
			close(recovered)
			time.Sleep(tc.within)
			if got := len(events); got != tc.pods {
				t.Errorf("%d of %d pods were told", got, tc.pods)
			}
		})
	}
}

// Inspections that fail late are retried as often as the serial kubelet would.
func TestLateFailuresRecoverSoon(t *testing.T) {
	const ill = 20 * time.Minute
	for _, test := range []struct {
		pods int
		slow time.Duration // after which an inspection fails
	}{{1, 2 * time.Second}, {30, 2 * time.Second}, {30, 10 * time.Second}} {
		kit.Bubble(t, fmt.Sprint(test.pods, " pods, ", test.slow), func(t *testing.T) {
			pods, slow := test.pods, test.slow
			p, events := startNode(t, pipeline.Options{}, pods)
			var fails atomic.Bool
			fails.Store(true)
			var calls atomic.Int64
			p.Runtime.SetInspectFault(func(context.Context) error {
				if calls.Add(1); !fails.Load() {
					return nil
				}
				time.Sleep(slow)
				return fmt.Errorf("no space left")
			})
			kit.Fill(p.Runtime, pods, "c=exited")
			time.Sleep(ill)
			// The serial kubelet makes one call at a time, and pauses for a period
			// after each round.
			serial := int64(ill/(time.Duration(pods)*slow+pipeline.DefaultRelistPeriod)) * int64(pods)
			if got := calls.Load(); got > serial*11/10+2*int64(pods) {
				t.Errorf("%d calls while the runtime failed, want about %d", got, serial)
			}
			fails.Store(false)
			recovered := time.Now()
			for range pods {
				<-events
			}
			if took := time.Since(recovered); took > 10*time.Second {
				t.Errorf("the events came after %v, want at most 10 s", took)
			}
		})
	}
}

// Forty of a hundred pods hang. The other pods change every second: their events are never late, and neither
// are lists.
func TestHungPodsAreQuarantined(t *testing.T) {
	const (
		inspectors, hung, good = 8, 40, 60
		timeout                = 10 * time.Second
		// warmUp is longer than four inspections: before anything has answered, the first
		// inspections of all hung pods take that long.
		warmUp, steps = 60, 40
	)
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{Inspectors: inspectors, InspectTimeout: timeout, MaxQuarantine: 25 * time.Second})
		events := p.Events(t, 10_000)
		for _, uid := range kit.UIDs(hung) {
			p.Runtime.SetPodFault(uid, plegtest.Hang)
			p.Runtime.Set(uid, "c=running")
		}
		p.Start(t)
		kit.Relist(warmUp)
		if got := len(p.Look().Quarantined); got < hung-2*inspectors {
			t.Errorf("%d pods in quarantine, want %d, except pods that hang for the first time", got, hung)
		}
		seen := make(map[pleg.PodUID]int) // events
		for n := range steps {
			for i := range good {
				p.Runtime.Set(pleg.PodUID(fmt.Sprint("good-", i)), fmt.Sprintf("c%d=running", n))
			}
			kit.Relist(1)
			for _, ev := range kit.Drain(events) {
				seen[ev.PodUID]++
				if time.Since(ev.ObservedAt) > 0 {
					t.Fatalf("step %d: late event %+v", n, ev)
				}
			}
			if got := p.Runtime.Counts().InFlight; got > 2*inspectors {
				t.Fatalf("step %d: %d inspections in flight, want at most %d", n, got, 2*inspectors)
			}
		}
		for uid, got := range seen {
			if want := 1 + (steps-1)*3; got != want {
				t.Errorf("pod %s has %d events, want %d", uid, got, want)
			}
		}
		if lists := p.Runtime.Counts().Lists; len(seen) != good || lists != 1+warmUp+steps {
			t.Errorf("events of %d pods and %d lists, want those of the %d that do not hang, and a list each second", len(seen), lists, good)
		}
	})
}

// The call and the error of a quarantined pod are those of its last inspection: the first may have hung elsewhere.
func TestQuarantineNamesTheLastCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Log
		p := kit.New(t, pipeline.Options{InspectTimeout: 5 * time.Second, Logger: log.Logger()})
		p.Runtime.Set("a", "c=running")
		p.StartBetweenLists(t)
		p.Runtime.Set("a", "c=exited")
		for _, method := range []string{"ContainerStatus", "PodSandboxStatus"} {
			p.Runtime.SetPodFault("a", func(ctx context.Context) error {
				<-ctx.Done()
				return &pleg.CallError{Call: pleg.Call{Method: method, PodUID: "a"}, Err: ctx.Err()}
			})
			time.Sleep(time.Minute) // several inspections
			q := p.Look().Quarantined
			if len(q) != 1 || q[0].Call == nil || q[0].Call.Method != method || !strings.Contains(q[0].Err.Error(), method) {
				t.Errorf("quarantined %+v, want the call %s", q, method)
			}
			kit.RequireMetric(t, p.Metrics, 1, "pleg_quarantined_pods")
			if v := verdict.Of(p.Look()); !strings.Contains(v.Text, "ns/name-a hangs since ") || !strings.HasSuffix(v.Text, " in "+method) {
				t.Errorf("the verdict is %q, want the call %s", v.Text, method)
			}
		}
		log.RequireLines(t, 1, `level=WARN msg="pod quarantined, inspection hung" stage=differ podUID=a pod=ns/name-a age=5s failedLate=false nextTry=1s err="`)
		p.Runtime.SetPodFault("a", nil)
		time.Sleep(pipeline.DefaultMaxQuarantine)
		log.RequireLines(t, 1, `level=INFO msg="pod released from quarantine" stage=differ podUID=a pod=ns/name-a gone=false after=`)
		kit.RequireMetric(t, p.Metrics, 0, "pleg_quarantined_pods")
		for kind, want := range map[pleg.EventType]float64{pleg.ContainerStarted: 1, pleg.ContainerDied: 1, pleg.ContainerRemoved: 0} {
			kit.RequireMetric(t, p.Metrics, want, "pleg_events_total", string(kind))
		}
	})
}
