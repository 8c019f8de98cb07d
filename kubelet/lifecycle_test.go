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
		{"another clock", func() {
			kubelet.New(newFakeRuntime(), events, durations, cache, testingclock.NewFakeClock(time.Time{}))
		}},
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
