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

// New refuses what it cannot work with, as NewGenericPLEG does.
func TestNewPanics(t *testing.T) {
	events := make(chan *pleg.PodLifecycleEvent, 1)
	durations := &pleg.RelistDuration{}
	cache := kubecontainer.NewCache()
	for _, test := range []struct {
		name string
		make func()
	}{
		{"no runtime", func() { kubelet.New(klog.Background(), nil, events, durations, cache, clock.RealClock{}) }},
		{"no channel", func() { kubelet.New(klog.Background(), newNode(), nil, durations, cache, clock.RealClock{}) }},
		{"no durations", func() { kubelet.New(klog.Background(), newNode(), events, nil, cache, clock.RealClock{}) }},
		{"no cache", func() { kubelet.New(klog.Background(), newNode(), events, durations, nil, clock.RealClock{}) }},
		{"another clock", func() {
			kubelet.New(klog.Background(), newNode(), events, durations, cache, testingclock.NewFakeClock(time.Now()))
		}},
		{"negative period", func() {
			kubelet.New(klog.Background(), newNode(), events, &pleg.RelistDuration{RelistPeriod: -1}, cache, clock.RealClock{})
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

// A second Start does nothing, Watch is the channel that New was given, and
// after Stop nothing runs, which the bubble checks; nothing is logged of it.
func TestStartAndStop(t *testing.T) {
	stage(t, func(n *node) { n.set("1", "c1=running") }, func(s *scene) {
		s.pleg.Start()
		s.settle()
		s.expect("1 Started c1")
		s.pleg.Stop()
		s.pleg.Stop()
		s.pleg.Start()
		s.node.set("1", "c1=exited")
		s.wait(5 * time.Second)
		s.expect()
		if got := s.log.with("ended"); len(got) > 0 {
			t.Errorf("logged %q", got)
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	p := kubelet.New(klog.Background(), newNode(), make(chan *pleg.PodLifecycleEvent),
		&pleg.RelistDuration{}, kubecontainer.NewCache(), clock.RealClock{})
	p.Stop()
	if ok, err := p.Healthy(); ok || err == nil {
		t.Errorf("Healthy() = %v, %v before Start", ok, err)
	}
}
