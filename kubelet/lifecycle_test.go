package kubelet_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/pleg-pipeline/pleg-pipeline/kubelet"
)

// Like NewGenericPLEG, New panics if an argument is invalid.
func TestNewPanicsOnInvalidArgument(t *testing.T) {
	events := make(chan *pleg.PodLifecycleEvent, 1)
	durations := &pleg.RelistDuration{}
	cache := kubecontainer.NewCache()
	for _, test := range []struct {
		name string
		make func()
	}{
		{"no runtime", func() { kubelet.New(nil, events, durations, cache, clock.RealClock{}) }},
		{"no channel", func() { kubelet.New(newFakeRuntime(), nil, durations, cache, clock.RealClock{}) }},
		{"no durations", func() { kubelet.New(newFakeRuntime(), events, nil, cache, clock.RealClock{}) }},
		{"no cache", func() { kubelet.New(newFakeRuntime(), events, durations, nil, clock.RealClock{}) }},
		{"no clock", func() { kubelet.New(newFakeRuntime(), events, durations, cache, nil) }},
		{"negative period", func() {
			kubelet.New(newFakeRuntime(), events, &pleg.RelistDuration{RelistPeriod: -1}, cache, clock.RealClock{})
		}},
		{"negative inspectors", func() {
			kubelet.NewWithOptions(kubelet.Options{Inspectors: -1}, newFakeRuntime(), events, durations, cache, clock.RealClock{})
		}},
		{"negative timeout", func() {
			kubelet.NewWithOptions(kubelet.Options{RuntimeRequestTimeout: -1}, newFakeRuntime(), events, durations, cache, clock.RealClock{})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			test.make()
		})
	}
}

// The generator ends with the context of Start, its goroutines too, which the bubble
// checks, and nothing is logged. It runs once.
func TestStartEndsWithContext(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		f.stop()
		f.start()
		f.runtime.set("1", "c1=running")
		f.wait(5 * time.Second)
		f.expect()
		if got := f.log.containing("ended"); len(got) > 0 {
			t.Errorf("logged %q", got)
		}
	})
}

// Another clock decides when all pods are listed, and how old the last list is.
func TestFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := testingclock.NewFakeClock(time.Time{})
		runtime := newFakeRuntime()
		p := kubelet.New(runtime, make(chan *pleg.PodLifecycleEvent, 10),
			&pleg.RelistDuration{RelistPeriod: time.Hour, RelistThreshold: 3 * time.Hour}, newRecorder(), clk)
		if ok, err := p.Healthy(); ok || err == nil {
			t.Errorf("Healthy() = %v, %v before Start", ok, err)
		}
		ctx, cancel := context.WithCancel(quiet(t))
		defer synctest.Wait()
		defer cancel()
		p.Start(ctx)
		time.Sleep(24 * time.Hour) // says nothing
		runtime.set("1", "c1=running")
		for range 2 {
			clk.Step(59 * time.Minute)
			synctest.Wait()
			if got := drain(p.Watch()); len(got) > 0 {
				t.Errorf("events %q before the relist period has passed", got)
			}
			clk.Step(2 * time.Minute)
			synctest.Wait()
			if got := drain(p.Watch()); len(got) != 1 {
				t.Errorf("events %q after the relist period, want one", got)
			}
			runtime.set("1", "c1=exited")
		}
		runtime.fail(errors.New("no list"))
		for hours, want := range []bool{true, true, true, false} {
			if ok, err := p.Healthy(); ok != want {
				t.Errorf("Healthy() = %v, %v %d hours after the last list", ok, err, hours)
			}
			clk.Step(time.Hour + time.Minute)
			synctest.Wait()
		}
	})
}
