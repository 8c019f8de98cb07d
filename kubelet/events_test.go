package kubelet_test

import (
	"errors"
	"testing"
	"time"
)

// TestEvents has the rules of which events a step makes, and in which order.
func TestEvents(t *testing.T) {
	for _, test := range []struct {
		name, before, after string
		want                []string
	}{
		{"new pod", "", "c1=running /s1=running", []string{"1 Started c1", "1 Started s1"}},
		{"sandboxes count as containers", "/s1=running", "/s1=exited", []string{"1 Died s1"}},
		{"first seen dead", "", "c1=exited /s1=exited", []string{"1 Died c1", "1 Died s1"}},
		{"removed while it ran", "c1=running c2=running", "c2=running", []string{"1 Died c1", "1 Removed c1"}},
		{"removed once dead", "c1=exited c2=running", "c2=running", []string{"1 Removed c1"}},
		{"removed in an unknown state", "c1=unknown c2=running", "c2=running", []string{"1 Died c1", "1 Removed c1"}},
		{
			"old containers before new ones, newest first", "c1=running c0=running /s1=running",
			"d1=running d0=running c1=exited c0=exited /s1=running",
			[]string{"1 Died c1", "1 Died c0", "1 Started d1", "1 Started d0"},
		},
		{
			"old sandboxes after old containers, before new containers", "c1=running /s1=running",
			"c2=running c1=exited /s2=running /s1=exited",
			[]string{"1 Died c1", "1 Died s1", "1 Started c2", "1 Started s2"},
		},
		{
			"pod gone", "c1=running c0=exited /s1=running", "",
			[]string{"1 Died c1", "1 Removed c1", "1 Removed c0", "1 Died s1", "1 Removed s1"},
		},
		{"nothing new", "c1=running /s1=running", "c1=running /s1=running", nil},
		{"another order", "c1=running c2=running", "c2=running c1=running", nil},
		{"from created to unknown", "c1=created", "c1=unknown", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			stage(t, func(n *node) { n.set("1", test.before) }, func(s *scene) {
				s.events()
				s.node.set("1", test.after)
				s.relist()
				s.expect(test.want...)
			})
		})
	}
}

// A created or unknown container has its pod inspected and cached, but there is
// no event, and no PodSync in its place.
func TestUnknownStatesAreCachedAndNotSent(t *testing.T) {
	for _, state := range []string{"created", "unknown"} {
		t.Run(state, func(t *testing.T) {
			stage(t, nil, func(s *scene) {
				s.node.set("1", "c1="+state)
				s.relist()
				s.expect()
				if n := s.node.inspections("1"); n != 1 {
					t.Errorf("%d inspections, want 1", n)
				}
				if status, err := s.cache.Get("1"); err != nil || len(status.ContainerStatuses) != 1 {
					t.Errorf("the cache has %v, %v; want one container", status, err)
				}
			})
		})
	}
}

// After a failed inspection the cache has the runtime's own error, nothing is
// sent, and the change is found again.
func TestFailedInspectionIsRetried(t *testing.T) {
	stage(t, nil, func(s *scene) {
		broken := errors.New("broken")
		s.node.breakPod("1", broken)
		s.node.set("1", "c1=running")
		s.relist()
		s.expect()
		if status, err := s.cache.Get("1"); status != nil || err != broken { //nolint:errorlint // the very error, not one that wraps it
			t.Errorf("the cache has %v, %v; want the runtime's error", status, err)
		}
		s.node.breakPod("1", nil)
		s.relist()
		s.expect("1 Started c1")
		if _, err := s.cache.Get("1"); err != nil {
			t.Errorf("the cache still has the error %v", err)
		}
		s.relist()
		s.expect()
		if n := s.node.inspections("1"); n != 2 {
			t.Errorf("%d inspections, want 2", n)
		}
	})
}

// What happened and was undone while inspections failed is one PodSync.
func TestThereAndBackDuringFailuresIsAPodSync(t *testing.T) {
	stage(t, func(n *node) { n.set("1", "c1=running") }, func(s *scene) {
		s.events()
		s.node.breakPod("1", errors.New("broken"))
		s.node.set("1", "c1=exited")
		s.relist()
		s.node.set("1", "c1=running")
		s.relist()
		s.expect()
		s.node.breakPod("1", nil)
		s.relist()
		s.expect("1 PodSync")
	})
}

// A pod that is gone is not inspected; what is left to tell is told even if the
// inspection before failed.
func TestPodThatIsGone(t *testing.T) {
	stage(t, func(n *node) { n.set("1", "c1=running") }, func(s *scene) {
		s.events()
		s.node.breakPod("1", errors.New("broken"))
		s.node.set("1", "c1=exited")
		s.relist()
		before := s.node.inspections("1")
		s.node.set("1", "")
		s.relist()
		s.expect("1 Died c1", "1 Removed c1")
		if n := s.node.inspections("1"); n != before {
			t.Errorf("a pod that is gone was inspected %d times", n-before)
		}
		if _, ok := s.cache.statusTime("1"); ok {
			t.Error("the cache still has the pod")
		}
	})
}

func TestReinspectionWithoutAChangeIsAPodSync(t *testing.T) {
	stage(t, func(n *node) { n.set("1", "c1=running") }, func(s *scene) {
		s.events()
		s.pleg.RequestReinspect("1")
		s.settle()
		s.expect()
		s.relist()
		s.expect("1 PodSync")
		s.relist()
		s.expect()
	})
}

// A request made while the pod is being inspected asks for another inspection.
func TestReinspectRequestedDuringInspection(t *testing.T) {
	stage(t, nil, func(s *scene) {
		s.node.slow("1", 200*time.Millisecond)
		s.node.set("1", "c1=running")
		s.wait(600 * time.Millisecond)
		if n := s.node.inspections("1"); n != 1 {
			t.Fatalf("%d inspections under way, want 1", n)
		}
		s.pleg.RequestReinspect("1")
		s.wait(400 * time.Millisecond)
		s.expect("1 Started c1")
		s.wait(time.Second)
		s.expect("1 PodSync")
	})
}
