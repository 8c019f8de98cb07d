package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
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

// After Stop no goroutine runs, which the bubble checks, and nothing is logged. A
// second Start reports what has changed since, and nothing again.
func TestStartAfterStop(t *testing.T) {
	setUp := func(r *fakeRuntime) {
		r.set("1", "c1=running /s1=running")
		r.set("2", "c2=running")
		r.set("3", "c3=running")
	}
	runFixture(t, setUp, func(f *fixture) {
		f.start() // runs already
		f.events()
		f.pleg.Stop()
		f.pleg.Stop()
		f.runtime.set("1", "c1=exited /s1=exited")
		f.runtime.strip("1", true)
		f.runtime.set("3", "")
		f.wait(5 * time.Second)
		f.expect()
		f.start()
		f.settle()
		got := byPod(f.events())
		if got["1"] != "Died c1, Died s1" || got["2"] != "" || got["3"] != "Died c3, Removed c3" {
			t.Errorf("events after the second start %q", got)
		}
		if n := f.runtime.inspections("2"); n != 1 {
			t.Errorf("%d inspections of the pod that has not changed, want 1", n)
		}
		if status, err := f.cache.Get("1"); err != nil || len(status.IPs) != 1 || status.IPs[0] != address("1") {
			t.Errorf("status %+v, %v has lost the address from before the stop", status, err)
		}
		if ok, err := f.pleg.Healthy(); !ok {
			t.Errorf("not healthy after the second start: %v", err)
		}
		if got := f.log.containing("ended"); len(got) > 0 {
			t.Errorf("logged %q", got)
		}
	})
}

// What has failed or was requested before a stop is inspected after the next start.
func TestReinspectionsSurviveStop(t *testing.T) {
	setUp := func(r *fakeRuntime) {
		r.set("1", "c1=running")
		r.set("2", "c2=running")
	}
	runFixture(t, setUp, func(f *fixture) {
		f.events()
		f.runtime.breakPod("1", errors.New("broken"))
		f.pleg.RequestReinspect("1")
		f.relist()
		f.pleg.Stop()
		f.pleg.RequestReinspect("2")
		f.runtime.breakPod("1", nil)
		f.start()
		f.settle()
		if got := byPod(f.events()); got["1"] != "PodSync" || got["2"] != "PodSync" {
			t.Errorf("events after the second start %q, want one PodSync for each pod", got)
		}
	})
}

// The kubelet still gets the PodSyncs that waited for room in its channel.
func TestDiscardedEventsSurviveStop(t *testing.T) {
	const pods, room = 30, 10
	for name, again := range map[string]func(f *fixture){
		"start":  func(f *fixture) { f.start() },
		"relist": func(f *fixture) { f.pleg.Relist(quiet(f.t)); f.start() },
	} {
		t.Run(name, func(t *testing.T) {
			runFixtureWith(t, room, nil, func(f *fixture) {
				for i := range pods {
					f.runtime.set(types.UID(fmt.Sprint(i)), fmt.Sprintf("a%d=running", i))
				}
				f.relist()
				f.pleg.Stop()
				again(f)
				f.settle()
				reported := make(map[string]bool)
				for range pods {
					for _, e := range f.events() {
						uid, _, _ := strings.Cut(e, " ")
						reported[uid] = true
					}
					f.settle()
				}
				if len(reported) != pods {
					t.Errorf("events of %d pods, want %d", len(reported), pods)
				}
			})
		})
	}
}

// The generator ends with the context of Start, and can be started again.
func TestStartEndsWithContext(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		f.pleg.Stop()
		ctx, cancel := context.WithCancel(f.t.Context())
		f.pleg.Start(ctx)
		f.settle()
		cancel()
		f.runtime.set("1", "c1=running")
		f.wait(5 * time.Second)
		f.expect()
		f.start()
		f.settle()
		f.expect("1 Started c1")
		if got := f.log.containing("ended"); len(got) > 0 {
			t.Errorf("logged %q", got)
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	p := kubelet.New(newFakeRuntime(), make(chan *pleg.PodLifecycleEvent),
		&pleg.RelistDuration{}, kubecontainer.NewCache(), clock.RealClock{})
	p.Stop()
	if ok, err := p.Healthy(); ok || err == nil {
		t.Errorf("Healthy() = %v, %v before Start", ok, err)
	}
}

// Another clock decides when all pods are listed, and how old the last list is.
func TestFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := testingclock.NewFakeClock(time.Time{})
		runtime := newFakeRuntime()
		p := kubelet.New(runtime, make(chan *pleg.PodLifecycleEvent, 10),
			&pleg.RelistDuration{RelistPeriod: time.Hour, RelistThreshold: 3 * time.Hour}, newRecorder(), clk)
		p.Start(quiet(t))
		defer p.Stop()
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
