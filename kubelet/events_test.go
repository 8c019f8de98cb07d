package kubelet_test

import (
	"errors"
	"testing"
	"time"
)

func TestEventsOfEachChange(t *testing.T) {
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
			runFixture(t, func(r *fakeRuntime) { r.set("1", test.before) }, func(f *fixture) {
				f.events()
				f.runtime.set("1", test.after)
				f.relist()
				f.expect(test.want...)
			})
		})
	}
}

// A created or unknown container causes an inspection, but neither an event nor a
// PodSync.
func TestUnknownStatesAreCachedAndNotSent(t *testing.T) {
	for _, state := range []string{"created", "unknown"} {
		t.Run(state, func(t *testing.T) {
			runFixture(t, nil, func(f *fixture) {
				f.runtime.set("1", "c1="+state)
				f.relist()
				f.expect()
				if n := f.runtime.inspections("1"); n != 1 {
					t.Errorf("%d inspections, want 1", n)
				}
				if status, err := f.cache.Get("1"); err != nil || len(status.ContainerStatuses) != 1 {
					t.Errorf("the cache has %v, %v; want one container", status, err)
				}
			})
		})
	}
}

// After a failed inspection the cache has the runtime's error, no event is sent, and
// the next relist finds the change again.
func TestFailedInspectionIsRetried(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		broken := errors.New("broken")
		f.runtime.breakPod("1", broken)
		f.runtime.set("1", "c1=running")
		f.relist()
		f.expect()
		if status, err := f.cache.Get("1"); status != nil || err != broken { //nolint:errorlint // must be the same error, not wrapped
			t.Errorf("the cache has %v, %v; want the runtime's error", status, err)
		}
		f.runtime.breakPod("1", nil)
		f.relist()
		f.expect("1 Started c1")
		if _, err := f.cache.Get("1"); err != nil {
			t.Errorf("the cache still has the error %v", err)
		}
		f.relist()
		f.expect()
		if n := f.runtime.inspections("1"); n != 2 {
			t.Errorf("%d inspections, want 2", n)
		}
	})
}

// If a change is undone while inspections fail, one PodSync is sent.
func TestUndoneChangeDuringFailuresSendsPodSync(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running") }, func(f *fixture) {
		f.events()
		f.runtime.breakPod("1", errors.New("broken"))
		f.runtime.set("1", "c1=exited")
		f.relist()
		f.runtime.set("1", "c1=running")
		f.relist()
		f.expect()
		f.runtime.breakPod("1", nil)
		f.relist()
		f.expect("1 PodSync")
	})
}

// A pod that is gone is not inspected. Its events are sent even if its last
// inspection failed.
func TestRemovedPodIsNotInspected(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running") }, func(f *fixture) {
		f.events()
		f.runtime.breakPod("1", errors.New("broken"))
		f.runtime.set("1", "c1=exited")
		f.relist()
		before := f.runtime.inspections("1")
		f.runtime.set("1", "")
		f.relist()
		f.expect("1 Died c1", "1 Removed c1")
		if n := f.runtime.inspections("1"); n != before {
			t.Errorf("a pod that is gone was inspected %d times", n-before)
		}
		if _, ok := f.cache.statusTime("1"); ok {
			t.Error("the cache still has the pod")
		}
	})
}

func TestReinspectionWithoutChangeSendsPodSync(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running") }, func(f *fixture) {
		f.events()
		f.pleg.RequestReinspect("1")
		f.settle()
		f.expect()
		f.relist()
		f.expect("1 PodSync")
		f.relist()
		f.expect()
	})
}

// If RequestReinspect is called during an inspection, another one follows.
func TestReinspectDuringInspectionInspectsAgain(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		f.runtime.slow("1", 200*time.Millisecond)
		f.runtime.set("1", "c1=running")
		f.wait(600 * time.Millisecond)
		if n := f.runtime.inspections("1"); n != 1 {
			t.Fatalf("%d inspections started, want 1", n)
		}
		f.pleg.RequestReinspect("1")
		f.wait(400 * time.Millisecond)
		f.expect("1 Started c1")
		f.wait(time.Second)
		f.expect("1 PodSync")
	})
}
