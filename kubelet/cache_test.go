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

// Who receives an event finds its status in the cache.
func TestCacheIsWrittenBeforeTheEvent(t *testing.T) {
	stage(t, nil, func(s *scene) {
		done := make(chan error)
		go func() {
			for range 50 {
				e := <-s.pleg.Watch()
				status, err := s.cache.Get(e.ID)
				if err == nil && (len(status.ContainerStatuses) != 1 || status.ContainerStatuses[0].ID.ID != e.Data) {
					err = fmt.Errorf("at %s the cache has %+v", words(e), status)
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		for i := range 50 {
			s.node.slow(types.UID(fmt.Sprint(i)), time.Duration(i%7)*time.Millisecond)
			s.node.set(types.UID(fmt.Sprint(i)), fmt.Sprintf("c%d=running", i))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A status carries the time at which its pod was read, not the time at which it
// was inspected.
func TestStatusTimeIsTheListsTime(t *testing.T) {
	stage(t, nil, func(s *scene) {
		s.node.slowLists(100 * time.Millisecond)
		s.node.slow("1", 300*time.Millisecond)
		s.node.set("1", "c1=running")
		s.wait(500 * time.Millisecond)
		began := time.Now()
		s.wait(400 * time.Millisecond)
		if at, ok := s.cache.statusTime("1"); !ok || !at.Equal(began) {
			t.Errorf("the status is of %v after the list began, want 0", at.Sub(began))
		}
		status, err := s.cache.Get("1")
		if err != nil || !status.TimeStamp.Equal(began) {
			t.Errorf("the cache has %+v, %v; want the time of the list, %v", status, err, began)
		}
	})
}

// A failed list moves neither the health time nor the cache time, and what it
// would have shown comes out at the next good one.
func TestFailedList(t *testing.T) {
	stage(t, func(n *node) { n.set("1", "c1=running") }, func(s *scene) {
		s.events()
		before := s.cache.cacheTime()
		s.node.fail(errors.New("no list"))
		s.node.set("1", "c1=exited")
		s.wait(10 * time.Second)
		s.expect()
		if at := s.cache.cacheTime(); !at.Equal(before) {
			t.Errorf("failed lists moved the time of the cache by %v", at.Sub(before))
		}
		if ok, err := s.pleg.Healthy(); !ok {
			t.Errorf("unhealthy after 10 s: %v", err)
		}
		s.wait(3 * time.Minute)
		if ok, _ := s.pleg.Healthy(); ok {
			t.Error("healthy although the lists have failed for more than 3 min")
		}
		s.node.fail(nil)
		s.relist()
		s.expect("1 Died c1")
		if ok, err := s.pleg.Healthy(); !ok {
			t.Errorf("unhealthy after a good list: %v", err)
		}
	})
}

func TestUnhealthyBeforeTheFirstList(t *testing.T) {
	stage(t, func(n *node) { n.fail(errors.New("no list")) }, func(s *scene) {
		if ok, err := s.pleg.Healthy(); ok || err == nil {
			t.Errorf("Healthy() = %v, %v before the first list", ok, err)
		}
	})
}

// Who waits for a pod that is gone is released by the list that shows it, with a
// status that has nothing but the id, and no error.
func TestWaitingForARemovedPod(t *testing.T) {
	stage(t, func(n *node) { n.set("1", "c1=running") }, func(s *scene) {
		answer := s.newerThan("1", time.Now())
		s.node.set("1", "")
		s.relist()
		status, err := s.cache.Get("1")
		if got := s.answered(answer); got == nil || got.ID != "1" || got.Name != "" || len(got.ContainerStatuses) > 0 {
			t.Errorf("the waiter got %+v, want an empty status of pod 1", got)
		}
		if err != nil || status.Name != "" {
			t.Errorf("the cache has %+v, %v; want an empty status", status, err)
		}
	})
}

// A pod that hangs delays neither the events of other pods nor those who wait
// for newer statuses of them; of itself nothing newer is promised.
func TestHungPodDelaysNobodyElse(t *testing.T) {
	stage(t, func(n *node) {
		n.set("hung", "h1=running")
		n.set("other", "o1=running")
		n.set("same", "s1=running")
		n.set("gone", "g1=exited")
	}, func(s *scene) {
		s.events()
		s.node.slow("hung", 2*time.Minute)
		s.node.set("hung", "h1=exited")
		s.node.set("other", "o1=exited")
		s.node.set("gone", "")
		now := time.Now()
		hung := s.newerThan("hung", now)
		others := []<-chan *kubecontainer.PodStatus{s.newerThan("other", now), s.newerThan("same", now), s.newerThan("gone", now)}
		s.relist()
		for _, answer := range others {
			s.answered(answer)
		}
		got := s.events()
		slices.Sort(got)
		if fmt.Sprint(got) != "[gone Removed g1 other Died o1]" {
			t.Errorf("events %q while a pod hangs", got)
		}
		s.node.set("other", "o2=running")
		again := s.newerThan("gone", time.Now())
		s.relist()
		s.answered(again)
		s.expect("other Removed o1", "other Started o2")
		select {
		case status := <-hung:
			t.Fatalf("the waiter of the hung pod got %+v", status)
		default:
		}
		if !s.cache.cacheTime().Before(now) {
			t.Error("the time of the cache covers a pod that is being inspected")
		}
		if ok, err := s.pleg.Healthy(); !ok {
			t.Errorf("unhealthy: %v", err)
		}
		s.wait(2 * time.Minute)
		if status := s.answered(hung); status.ContainerStatuses[0].State != kubecontainer.ContainerStateExited {
			t.Errorf("the waiter of the hung pod got %+v", status)
		}
		s.expect("hung Died h1")
		if s.cache.cacheTime().Before(now) {
			t.Error("the time of the cache has not moved on")
		}
	})
}

// While some pod is always being inspected, the time of the cache follows at a
// distance.
func TestCacheTimeFollowsUnderSteadyChange(t *testing.T) {
	for _, pods := range []int{1, 2} {
		t.Run(fmt.Sprint(pods), func(t *testing.T) {
			stage(t, nil, func(s *scene) {
				for n := range 30 {
					uid := types.UID(fmt.Sprint(n % pods))
					s.node.slow(uid, 1800*time.Millisecond)
					s.node.set(uid, fmt.Sprintf("c%d=running", n))
					s.relist()
				}
				if behind := time.Since(s.cache.cacheTime()); behind > 5*time.Second {
					t.Errorf("the time of the cache is %v behind", behind)
				}
				if n := s.cache.steppedBack(); n > 0 {
					t.Errorf("%d times went backwards", n)
				}
			})
		})
	}
}

// The address of a pod whose sandbox is down is kept, over a failed inspection
// too; a ready sandbox without an address has none.
func TestAddresses(t *testing.T) {
	stage(t, func(n *node) { n.set("1", "c1=running /s1=running") }, func(s *scene) {
		want := func(ips ...string) {
			t.Helper()
			status, err := s.cache.Get("1")
			if err != nil || !slices.Equal(status.IPs, ips) {
				t.Errorf("the cache has %+v, %v; want the addresses %v", status, err, ips)
			}
		}
		want(address("1"))
		s.node.breakPod("1", errors.New("broken"))
		s.node.set("1", "c1=exited /s1=running")
		s.relist()
		s.node.breakPod("1", nil)
		s.node.set("1", "c1=exited /s1=exited")
		s.relist()
		want(address("1"))
		s.node.set("1", "")
		s.relist()
		want()
		s.node.set("1", "c2=exited /s2=exited")
		s.relist()
		want()
	})
}

// A relist of one pod costs one list of it, and an inspection if it changed.
func TestRelistOfOnePod(t *testing.T) {
	stage(t, func(n *node) { n.set("1", "c1=running"); n.set("2", "d1=running") }, func(s *scene) {
		s.events()
		s.pleg.RequestRelist("1")
		s.settle()
		if got := [...]int{s.node.relists(), s.node.inspections("1")}; got != [...]int{1, 1} {
			t.Errorf("%d relists and inspections, want 1 and 1", got)
		}
		s.expect()
		if at := s.cache.fresh("1"); !at.Equal(time.Now()) {
			t.Errorf("the cache vouches for the pod until %v ago", time.Since(at))
		}
		s.wait(time.Millisecond)
		s.node.set("1", "c1=exited")
		s.node.set("2", "d1=exited")
		s.pleg.RequestRelist("1")
		s.settle()
		s.expect("1 Died c1")
		s.relist()
		s.expect("2 Died d1")
	})
}

// A pod that has vanished is reported at once, and who waits for it is released.
func TestRelistOfAVanishedPod(t *testing.T) {
	stage(t, func(n *node) { n.set("1", "c1=running") }, func(s *scene) {
		s.events()
		s.wait(time.Millisecond)
		never := s.newerThan("never seen", time.Now().Add(-time.Microsecond))
		s.node.set("1", "")
		s.pleg.RequestRelist("1")
		s.pleg.RequestRelist("never seen")
		s.settle()
		s.expect("1 Died c1", "1 Removed c1")
		if status := s.answered(never); status.ID != "never seen" {
			t.Errorf("the waiter got %+v", status)
		}
	})
}

// A list that began before a pod was relisted takes nothing back, though the
// pods it covers are given its time one by one while another is inspected.
func TestOlderListDoesNotTakeBack(t *testing.T) {
	stage(t, func(n *node) { n.set("1", "c1=running"); n.set("hung", "h1=running") }, func(s *scene) {
		s.node.slow("hung", time.Minute)
		s.node.set("hung", "h1=exited")
		s.wait(400 * time.Millisecond)
		s.node.slowLists(300 * time.Millisecond)
		s.wait(200 * time.Millisecond)
		s.pleg.RequestRelist("1") // while a list is under way
		s.settle()
		relisted := time.Now()
		s.wait(300 * time.Millisecond)
		if at := s.cache.fresh("1"); !at.Equal(relisted) {
			t.Errorf("the cache vouches for the pod until %v after it was relisted", at.Sub(relisted))
		}
		if n := s.cache.steppedBack(); n > 0 {
			t.Errorf("%d times went backwards", n)
		}
	})
}

// A panic of the runtime costs its pod a retry.
func TestRuntimePanicIsContained(t *testing.T) {
	stage(t, func(n *node) { n.set("2", "d1=running") }, func(s *scene) {
		s.events()
		s.node.set("1", "panic=running")
		s.node.set("2", "d1=exited")
		s.relist()
		s.expect("2 Died d1")
		if _, err := s.cache.Get("1"); err == nil {
			t.Error("the cache has no error of the pod whose inspection panicked")
		}
	})
}
