package kubelet_test

import (
	"testing"
	"time"

	"k8s.io/klog/v2"
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
		{"no runtime", func() { kubelet.New(klog.Background(), nil, events, durations, cache, clock.RealClock{}) }},
		{"no channel", func() { kubelet.New(klog.Background(), newFakeRuntime(), nil, durations, cache, clock.RealClock{}) }},
		{"no durations", func() { kubelet.New(klog.Background(), newFakeRuntime(), events, nil, cache, clock.RealClock{}) }},
		{"no cache", func() { kubelet.New(klog.Background(), newFakeRuntime(), events, durations, nil, clock.RealClock{}) }},
		{"another clock", func() {
			kubelet.New(klog.Background(), newFakeRuntime(), events, durations, cache, testingclock.NewFakeClock(time.Now()))
		}},
		{"negative period", func() {
			kubelet.New(klog.Background(), newFakeRuntime(), events, &pleg.RelistDuration{RelistPeriod: -1}, cache, clock.RealClock{})
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

// Further calls of Start and Stop do nothing. After Stop no goroutine runs, which
// the bubble checks, and nothing is logged.
func TestStartAndStopTwice(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running") }, func(f *fixture) {
		f.pleg.Start()
		f.settle()
		f.expect("1 Started c1")
		f.pleg.Stop()
		f.pleg.Stop()
		f.pleg.Start()
		f.runtime.set("1", "c1=exited")
		f.wait(5 * time.Second)
		f.expect()
		if got := f.log.containing("ended"); len(got) > 0 {
			t.Errorf("logged %q", got)
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	p := kubelet.New(klog.Background(), newFakeRuntime(), make(chan *pleg.PodLifecycleEvent),
		&pleg.RelistDuration{}, kubecontainer.NewCache(), clock.RealClock{})
	p.Stop()
	if ok, err := p.Healthy(); ok || err == nil {
		t.Errorf("Healthy() = %v, %v before Start", ok, err)
	}
}
