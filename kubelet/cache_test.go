package kubelet_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// A status has the time of the list, not of the inspection.
func TestStatusHasTheTimeOfTheList(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		f.runtime.slowLists(100 * time.Millisecond)
		f.runtime.slow("1", 300*time.Millisecond)
		f.runtime.set("1", "c1=running")
		f.wait(500 * time.Millisecond)
		began := time.Now()
		f.wait(400 * time.Millisecond)
		if at, ok := f.cache.statusTime("1"); !ok || !at.Equal(began) {
			t.Errorf("the time of the status is %v after the start of the list, want 0", at.Sub(began))
		}
		status, err := f.cache.Get("1")
		if err != nil || !status.TimeStamp.Equal(began) {
			t.Errorf("the cache has %+v, %v; want the time of the list, %v", status, err, began)
		}
	})
}

// A failed list changes neither the health time nor the cache time. The next
// successful list reports the changes.
func TestFailedListKeepsTimes(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running") }, func(f *fixture) {
		f.events()
		before := f.cache.cacheTime()
		f.runtime.fail(errors.New("no list"))
		f.runtime.set("1", "c1=exited")
		f.wait(10 * time.Second)
		f.expect()
		if at := f.cache.cacheTime(); !at.Equal(before) {
			t.Errorf("failed lists changed the time of the cache by %v", at.Sub(before))
		}
		if ok, err := f.pleg.Healthy(); !ok {
			t.Errorf("unhealthy after 10 s: %v", err)
		}
		f.wait(3 * time.Minute)
		if ok, _ := f.pleg.Healthy(); ok {
			t.Error("healthy although lists have failed for more than 3 min")
		}
		f.runtime.fail(nil)
		f.relist()
		f.expect("1 Died c1")
		if ok, err := f.pleg.Healthy(); !ok {
			t.Errorf("unhealthy after a successful list: %v", err)
		}
	})
}

// A hung inspection delays neither the events nor the GetNewerThan of other pods.
// GetNewerThan of its own pod waits.
func TestHungInspectionDelaysNoOtherPod(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) {
		r.set("hung", "h1=running")
		r.set("other", "o1=running")
		r.set("same", "s1=running")
		r.set("gone", "g1=exited")
	}, func(f *fixture) {
		f.events()
		f.runtime.slow("hung", 2*time.Minute)
		f.runtime.set("hung", "h1=exited")
		f.runtime.set("other", "o1=exited")
		f.runtime.set("gone", "")
		now := time.Now()
		hung := f.newerThan("hung", now)
		others := []<-chan *kubecontainer.PodStatus{f.newerThan("other", now), f.newerThan("same", now), f.newerThan("gone", now)}
		f.relist()
		for _, answer := range others {
			f.answered(answer)
		}
		got := f.events()
		slices.Sort(got)
		if fmt.Sprint(got) != "[gone Removed g1 other Died o1]" {
			t.Errorf("events %q during a hung inspection", got)
		}
		f.runtime.set("other", "o2=running")
		again := f.newerThan("gone", time.Now())
		f.relist()
		f.answered(again)
		f.expect("other Removed o1", "other Started o2")
		select {
		case status := <-hung:
			t.Fatalf("GetNewerThan of the hung pod returned %+v", status)
		default:
		}
		if !f.cache.cacheTime().Before(now) {
			t.Error("the time of the cache includes a pod that is being inspected")
		}
		if ok, err := f.pleg.Healthy(); !ok {
			t.Errorf("unhealthy: %v", err)
		}
		f.wait(2 * time.Minute)
		if status := f.answered(hung); status.ContainerStatuses[0].State != kubecontainer.ContainerStateExited {
			t.Errorf("GetNewerThan of the hung pod returned %+v at last", status)
		}
		f.expect("hung Died h1")
		if f.cache.cacheTime().Before(now) {
			t.Error("the time of the cache has not advanced")
		}
	})
}

// The time of the cache advances even if a pod is being inspected at any time.
func TestCacheTimeAdvancesUnderSteadyChange(t *testing.T) {
	for _, pods := range []int{1, 2} {
		t.Run(fmt.Sprint(pods), func(t *testing.T) {
			runFixture(t, nil, func(f *fixture) {
				for n := range 30 {
					uid := types.UID(fmt.Sprint(n % pods))
					f.runtime.slow(uid, 1800*time.Millisecond)
					f.runtime.set(uid, fmt.Sprintf("c%d=running", n))
					f.relist()
				}
				if behind := time.Since(f.cache.cacheTime()); behind > 5*time.Second {
					t.Errorf("the time of the cache is %v behind", behind)
				}
				if n := f.cache.backwardSteps(); n > 0 {
					t.Errorf("%d times went back", n)
				}
			})
		})
	}
}

// A pod keeps its address while its sandbox is not ready, also after a failed
// inspection, until the pod is removed.
func TestPodWithoutReadySandboxKeepsAddress(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running /s1=running") }, func(f *fixture) {
		want := func(ips ...string) {
			t.Helper()
			status, err := f.cache.Get("1")
			if err != nil || !slices.Equal(status.IPs, ips) {
				t.Errorf("the cache has %+v, %v; want the addresses %v", status, err, ips)
			}
		}
		want(address("1"))
		f.runtime.breakPod("1", errors.New("broken"))
		f.runtime.set("1", "c1=exited /s1=running")
		f.relist()
		f.runtime.breakPod("1", nil)
		f.runtime.set("1", "c1=exited /s1=exited")
		f.relist()
		want(address("1"))
		f.runtime.set("1", "")
		f.relist()
		want()
		f.runtime.set("1", "c2=exited /s2=exited")
		f.relist()
		want()
	})
}

// If a single-pod relist does not find the pod, its events are sent at once, and
// GetNewerThan returns.
func TestSinglePodRelistOfRemovedPod(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running") }, func(f *fixture) {
		f.events()
		f.wait(time.Millisecond)
		unknown := f.newerThan("unknown", time.Now().Add(-time.Microsecond))
		f.runtime.set("1", "")
		f.requestRelist("1")
		f.requestRelist("unknown")
		f.settle()
		f.expect("1 Died c1", "1 Removed c1")
		if status := f.answered(unknown); status.ID != "unknown" {
			t.Errorf("GetNewerThan of an unknown pod returned %+v", status)
		}
	})
}

// If a list began before a single-pod relist and ends after it, the time of that pod
// does not go back.
func TestOlderListKeepsNewerTime(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running"); r.set("hung", "h1=running") }, func(f *fixture) {
		f.runtime.slow("hung", time.Minute)
		f.runtime.set("hung", "h1=exited")
		f.wait(400 * time.Millisecond)
		f.runtime.slowLists(300 * time.Millisecond)
		f.wait(200 * time.Millisecond)
		f.requestRelist("1") // during a list
		f.settle()
		relisted := time.Now()
		f.wait(300 * time.Millisecond)
		if at := f.cache.newest("1"); !at.Equal(relisted) {
			t.Errorf("the time of the pod is %v after its relist, want 0", at.Sub(relisted))
		}
		if n := f.cache.backwardSteps(); n > 0 {
			t.Errorf("%d times went back", n)
		}
	})
}

// A panic of the runtime becomes the error of the inspected pod.
func TestRuntimePanicIsContained(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("2", "d1=running") }, func(f *fixture) {
		f.events()
		f.runtime.set("1", "panic=running")
		f.runtime.set("2", "d1=exited")
		f.relist()
		f.expect("2 Died d1")
		if _, err := f.cache.Get("1"); err == nil {
			t.Error("the cache has no error after the panic")
		}
	})
}
