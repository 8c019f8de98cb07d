package kubelet_test

import (
	"testing"
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
	rt, cache, wall := newFakeRuntime(), kubecontainer.NewCache(), clock.RealClock{}
	for name, create := range map[string]func(){
		"no runtime":          func() { kubelet.New(nil, events, durations, cache, wall) },
		"no channel":          func() { kubelet.New(rt, nil, durations, cache, wall) },
		"no durations":        func() { kubelet.New(rt, events, nil, cache, wall) },
		"no cache":            func() { kubelet.New(rt, events, durations, nil, wall) },
		"no clock":            func() { kubelet.New(rt, events, durations, cache, nil) },
		"another clock":       func() { kubelet.New(rt, events, durations, cache, testingclock.NewFakeClock(time.Time{})) },
		"negative period":     func() { kubelet.New(rt, events, &pleg.RelistDuration{RelistPeriod: -1}, cache, wall) },
		"negative inspectors": func() { kubelet.NewWithOptions(kubelet.Options{Inspectors: -1}, rt, events, durations, cache, wall) },
		"negative timeout": func() {
			kubelet.NewWithOptions(kubelet.Options{RuntimeRequestTimeout: -1}, rt, events, durations, cache, wall)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
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
