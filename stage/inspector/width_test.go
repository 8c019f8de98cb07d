package inspector_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
)

const serviceTime = 10 * time.Millisecond

// slotRuntime serves a number of inspections at once, each in serviceTime; others
// wait.
type slotRuntime struct {
	slots chan struct{}
	// tail, if not 0, is the standard deviation of a log-normal distribution of the
	// times, drawn for each pod and burst.
	tail     float64
	bursts   int
	inFlight atomic.Int64
	most     atomic.Int64 // in flight
}

func newSlotRuntime(slots int) *slotRuntime { return &slotRuntime{slots: make(chan struct{}, slots)} }

func (r *slotRuntime) PodStatus(ctx context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	r.most.Store(max(r.most.Load(), r.inFlight.Add(1))) // begun one at a time
	defer r.inFlight.Add(-1)
	if pod.Name == "name-hung" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.slots <- struct{}{}
	// A tenth more or less, by pod.
	took := serviceTime + time.Duration(pod.UID[len(pod.UID)-1]%5)*serviceTime/20 - serviceTime/10
	number, _ := strconv.Atoi(string(pod.UID))
	drawn := rand.New(rand.NewPCG(uint64(r.bursts), uint64(number))).NormFloat64()
	time.Sleep(time.Duration(float64(took) * math.Exp(r.tail*drawn)))
	<-r.slots
	return plegtest.Status(pod), nil
}

// burst inspects a number of pods as fast as the inspector accepts them and returns
// how long that took.
func (r *slotRuntime) burst(f *fixture, pods int) time.Duration {
	began := time.Now()
	r.most.Store(0)
	r.bursts++
	go func() {
		for n := range pods {
			f.inspect <- change(1, plegtest.Pod(pleg.PodUID(fmt.Sprint(n)), "c=running /s=running"))
		}
	}()
	for range pods {
		<-f.settled
		<-f.outcomes
	}
	synctest.Wait()
	return time.Since(began)
}

func widthOf(t *testing.T, reg prometheus.Gatherer) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	for _, f := range families {
		if f.GetName() == "pleg_inspection_width" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("no metric pleg_inspection_width")
	return 0
}

// The runtime must always be busy, with at most about twice the inspections that it
// serves at once, and a few more to see whether it serves more by now.
func TestWidthFollowsTheRuntime(t *testing.T) {
	const bound, pods = 32, 1000
	for name, tc := range map[string]struct {
		serves int
		most   float64
		fixed  bool
	}{
		"serves one at once":               {serves: 1, most: 6}, // never less than an eighth of the bound
		"serves four at once":              {serves: 4, most: 12},
		"serves ten at once":               {serves: 10, most: 25},
		"serves all at once":               {serves: pods, most: bound},
		"serves four at once, fixed width": {serves: 4, most: bound, fixed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewPedanticRegistry()
				rt := newSlotRuntime(tc.serves)
				f := newAdaptiveFixture(t, rt.PodStatus, inspector.Options{
					Inspectors: bound, FixedWidth: tc.fixed, Metrics: instrument.Registry{Registerer: reg},
				})
				rt.burst(f, 1000) // to find the knee
				var took, most, width []float64
				for range 5 {
					took = append(took, rt.burst(f, pods).Seconds())
					most = append(most, float64(rt.most.Load()))
					width = append(width, widthOf(t, reg))
				}
				if limit := (serviceTime * pods / time.Duration(min(tc.serves, bound)) * 105 / 100).Seconds(); slices.Max(took) > limit {
					t.Errorf("bursts took %v s, want at most %v: the runtime was kept waiting", took, limit)
				}
				// Now and then it is just growing, to see whether the runtime serves more.
				if got := median(most); got > tc.most || (tc.fixed || tc.serves > bound) && got != bound {
					t.Errorf("in flight: up to %v, want %v", most, tc.most)
				}
				if got := median(width); got > tc.most || tc.fixed && got != bound {
					t.Errorf("pleg_inspection_width = %v, want at most %v", width, tc.most)
				}
			})
		})
	}
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// Where some inspections take twenty times as long as others, though none waits
// for another, nothing is gained by fewer at once.
func TestWidthUnderAHeavyTail(t *testing.T) {
	for name, tc := range map[string]struct {
		sigma float64
		bound int
	}{
		"p99 of 3 times p50":                {0.5, 16},
		"p99 of 20 times p50":               {1.3, 16},
		"p99 of 20 times p50, 8 inspectors": {1.3, 8},
	} {
		t.Run(name, func(t *testing.T) {
			took := map[bool]float64{}
			for _, fixed := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					rt := newSlotRuntime(1000)
					rt.tail = tc.sigma
					f := newAdaptiveFixture(t, rt.PodStatus, inspector.Options{Inspectors: tc.bound, FixedWidth: fixed})
					for range 10 {
						took[fixed] += rt.burst(f, 1000).Seconds()
					}
				})
			}
			if took[false] > 1.25*took[true] {
				t.Errorf("10 bursts took %.3g s, with a fixed width %.3g s: want at most a quarter more", took[false], took[true])
			}
		})
	}
}

func TestWidthGrowsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		few, many := newSlotRuntime(2), newSlotRuntime(1000)
		var rt atomic.Pointer[slotRuntime]
		rt.Store(few)
		f := newAdaptiveFixture(t, func(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
			return rt.Load().PodStatus(ctx, pod, last)
		}, inspector.Options{Inspectors: 16, Metrics: instrument.Registry{Registerer: reg}})
		few.burst(f, 300)
		if got := widthOf(t, reg); got > 8 {
			t.Errorf("width of a runtime that serves 2 at once = %v, want at most 8", got)
		}
		rt.Store(many)
		many.burst(f, 1000)
		if got := widthOf(t, reg); got != 16 {
			t.Errorf("width after it serves all at once = %v, want the bound of 16", got)
		}
	})
}

// A hung inspection is no load: once it was overtaken it no longer counts for the width.
func TestHungInspectionsDoNotCountForTheWidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		rt := newSlotRuntime(1)
		f := newAdaptiveFixture(t, rt.PodStatus, inspector.Options{
			Inspectors: 8, HungAfter: time.Second, Metrics: instrument.Registry{Registerer: reg},
		})
		for range 16 { // in quieter times it learns how long an inspection takes alone
			rt.burst(f, 1)
		}
		rt.burst(f, 300)
		width := int(widthOf(t, reg))
		if width > 3 {
			t.Fatalf("width of a runtime that serves one at once = %d, want 2 or 3", width)
		}
		hang := func(n int) {
			pod := plegtest.Pod(pleg.PodUID(fmt.Sprint("hung", n)), "c=running")
			pod.Name = "name-hung"
			f.inspect <- change(1, pod)
		}
		for n := range width {
			hang(n)
			time.Sleep(100 * time.Millisecond)
		}
		for n := width; n < 8; n++ {
			began := time.Now()
			f.inspect <- change(1, plegtest.Pod("a", "c=running"))
			<-f.settled
			if took := time.Since(began); took > 200*time.Millisecond {
				t.Errorf("took %v beside %d hung pods, want the time of an inspection and of a trial", took, n)
			}
			hang(n)
		}
	})
}
