package kubelet_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
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
	rt, cache, wall := newFakeRuntime(), kubecontainer.NewCache(), clock.RealClock{}
	for name, create := range map[string]func(){
		"runtime cannot be nil":                                            func() { kubelet.New(nil, events, durations, cache, wall) },
		"eventChannel cannot be nil":                                       func() { kubelet.New(rt, nil, durations, cache, wall) },
		"relistDuration cannot be nil":                                     func() { kubelet.New(rt, events, nil, cache, wall) },
		"cache cannot be nil":                                              func() { kubelet.New(rt, events, durations, nil, wall) },
		"clock must be a clock.RealClock, got <nil>":                       func() { kubelet.New(rt, events, durations, cache, nil) },
		"clock must be a clock.RealClock, got *testing.FakeClock":          func() { kubelet.New(rt, events, durations, cache, testingclock.NewFakeClock(time.Time{})) },
		"new pipeline: Options.RelistPeriod must be positive, got -1ns":    func() { kubelet.New(rt, events, &pleg.RelistDuration{RelistPeriod: -1}, cache, wall) },
		"new pipeline: Options.RelistThreshold must be positive, got -1ns": func() { kubelet.New(rt, events, &pleg.RelistDuration{RelistThreshold: -1}, cache, wall) },
		"new pipeline: Options.Inspectors must be positive, got -1":        func() { kubelet.NewWithOptions(kubelet.Options{Inspectors: -1}, rt, events, durations, cache, wall) },
		"new pipeline: Options.ListTimeout must be positive, got -2ns": func() {
			kubelet.NewWithOptions(kubelet.Options{RuntimeRequestTimeout: -1}, rt, events, durations, cache, wall)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := recover(); got != "kubelet: "+name {
					t.Errorf("panic %v, want kubelet: %s", got, name)
				}
			}()
			create()
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

// The kubelet learns that pods wait and no inspection succeeds, although lists do.
func TestHealthyIsThatOfThePipeline(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		for i := range 5 {
			uid := types.UID(fmt.Sprint(i))
			f.runtime.set(uid, fmt.Sprintf("c%d=running", i))
			f.runtime.slow(uid, time.Hour)
		}
		f.wait(2 * time.Minute)
		if ok, err := f.pleg.Healthy(); !ok {
			t.Errorf("not healthy before the threshold: %v", err)
		}
		f.wait(2 * time.Minute)
		if ok, err := f.pleg.Healthy(); ok || err == nil || !strings.Contains(err.Error(), "test/") {
			t.Errorf("Healthy() = %v, %v, want false and the names of pods", ok, err)
		}
		f.stop()
		f.wait(10 * time.Second)
		if got := f.log.containing(`"The pod lifecycle event generator ended"`); len(got) != 1 || !strings.Contains(got[0], "keep running") {
			t.Errorf("logged %q, want one line with the calls that ignore their context", got)
		}
	})
}

// A list is two calls of the runtime, and an inspection one for each container: both may take longer than the
// timeout of a call, and not longer than their own.
func TestTimeoutsAreThoseOfSeveralCalls(t *testing.T) {
	for option, call := range map[time.Duration]time.Duration{0: 2 * time.Minute, 15 * time.Second: 15 * time.Second} {
		o := kubelet.Options{RuntimeRequestTimeout: option}
		runFixtureWith(t, o, 10, func(r *fakeRuntime) {
			r.set("1", "c1=running")
			r.slowLists(5*call/2 - time.Second)
			r.slow("1", 5*call-time.Second)
		}, func(f *fixture) {
			f.wait(8 * call)
			f.expect("1 Started c1")
		})
		for name, longer := range map[string]func(*fakeRuntime){
			"list":       func(r *fakeRuntime) { r.slowLists(5*call/2 + 2*time.Second) },
			"inspection": func(r *fakeRuntime) { r.slow("1", 5*call+2*time.Second) },
		} {
			runFixtureWith(t, o, 10, func(r *fakeRuntime) { r.set("1", "c1=running"); longer(r) }, func(f *fixture) {
				f.wait(12 * call)
				if got := f.events(); len(got) > 0 {
					t.Errorf("events %q after a longer %s than %v allows, want that it ends", got, name, call)
				}
			})
		}
	}
}

// What the pipeline logs is in the log of the kubelet.
func TestLogOfThePipeline(t *testing.T) {
	lines := &logLines{}
	klog.SetLogger(lines.logger())
	defer klog.ClearLogger()
	runFixture(t, nil, func(f *fixture) {
		f.runtime.fail(errList)
		f.wait(5 * time.Second)
		if len(lines.containing(errList.Error())) == 0 {
			t.Error("nothing is logged about the lists that fail")
		}
	})
}

// Sixteen pods are inspected at the same time, or as many as the option says.
func TestInspectors(t *testing.T) {
	for option, inspectors := range map[int]int{0: 16, 3: 3, 20: 20} {
		runFixtureWith(t, kubelet.Options{Inspectors: option}, 100, nil, func(f *fixture) {
			for i := range inspectors + 1 {
				uid := types.UID(fmt.Sprint(i))
				f.runtime.set(uid, fmt.Sprintf("c%d=running", i))
				f.runtime.slow(uid, 200*time.Millisecond)
			}
			f.wait(800 * time.Millisecond)
			if got := f.events(); len(got) != inspectors {
				t.Errorf("%d pods are inspected after the time of one, want %d", len(got), inspectors)
			}
			f.wait(200 * time.Millisecond)
			if got := f.events(); len(got) != 1 {
				t.Errorf("%d pods are inspected afterwards, want the last", len(got))
			}
		})
	}
}

// announcing is a runtime service with an event stream.
type announcing struct {
	internalapi.RuntimeService
	events chan *runtimeapi.ContainerEventResponse
}

func (a *announcing) GetContainerEvents(ctx context.Context, to chan *runtimeapi.ContainerEventResponse, opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	opened(nil)
	for {
		select {
		case e := <-a.events:
			to <- e
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// With the gate EventedPLEG on, the kubelet's EventedPLEG requests a relist of the pod
// whose container ended, and the pod cache refuses older statuses.
func TestEventedPLEG(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.EventedPLEG, true)
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running /s1=running") }, func(f *fixture) {
		f.events()
		ctx, cancel := context.WithCancel(f.t.Context())
		defer f.settle() // until the watcher has ended
		defer cancel()
		service := &announcing{events: make(chan *runtimeapi.ContainerEventResponse)}
		pleg.NewEventedPLEG(service, f.pleg, 5).Start(ctx)
		f.runtime.set("1", "c1=exited /s1=running")
		service.events <- &runtimeapi.ContainerEventResponse{
			ContainerId:        "c1",
			ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
			PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "1"}},
		}
		announced := time.Now()
		f.settle()
		f.expect("1 Died c1")
		if status, err := f.cache.status("1"); err != nil || status.TimeStamp.Before(announced) {
			t.Errorf("cache has %+v, %v", status, err)
		}
		f.runtime.set("1", "c2=running /s1=running")
		f.relist()
		f.expect("1 Removed c1", "1 Started c2")
		if status, err := f.cache.status("1"); err != nil || len(status.ContainerStatuses) != 1 || status.ContainerStatuses[0].ID.ID != "c2" {
			t.Errorf("cache has %+v, %v after the relist", status, err)
		}
	})
}
