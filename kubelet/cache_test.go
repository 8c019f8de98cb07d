package kubelet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// A removed pod gets times of its own while another pod is being inspected, for ten minutes.
func TestRemovedPodDuringAHungInspection(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) {
		r.set("hung", "h1=running")
		r.set("gone", "g1=exited")
	}, func(f *fixture) {
		f.runtime.slow("hung", 2*time.Minute)
		f.runtime.set("hung", "h1=exited")
		f.runtime.set("gone", "")
		for range 2 {
			gone := f.newerThan("gone", time.Now())
			f.relist()
			if status := f.answered(gone); len(status.ContainerStatuses) > 0 {
				t.Errorf("a caller that waited for the removed pod got %+v", status.ContainerStatuses[0])
			}
		}
		for _, tc := range []struct {
			wait time.Duration
			own  bool
		}{{5 * time.Minute, true}, {5 * time.Minute, false}} {
			f.wait(tc.wait)
			f.runtime.slow("hung", 1200*time.Millisecond)
			f.runtime.set("hung", fmt.Sprintf("h%v=running", tc.own))
			before := f.cache.strangerTimes()
			f.relist()
			if own := f.cache.strangerTimes() > before; own != tc.own {
				t.Errorf("after %v more the removed pod gets times of its own: %t, want %t", tc.wait, own, tc.own)
			}
		}
	})
}

// A list that began before a relist of one pod, and ends after it, does not set the time of the pod back.
func TestTimeOfAPodAfterAnOlderList(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) {
		r.set("hung", "h1=running")
		r.set("1", "c1=running")
	}, func(f *fixture) {
		f.runtime.slowLists(600 * time.Millisecond)
		f.runtime.slow("hung", time.Minute) // so that the cache has a time for each pod
		f.runtime.set("hung", "h1=exited")
		f.wait(700 * time.Millisecond) // the list runs
		f.runtime.slowLists(0)
		f.pleg.RequestRelist(logr.Discard(), "1")
		f.settle()
		relisted := time.Now()
		f.wait(500 * time.Millisecond)
		if at, n := f.cache.newest("1"), f.cache.backwardSteps(); !at.Equal(relisted) || n > 0 {
			t.Errorf("the time of the pod is %s, want %s; %d times went back", clockTime(at), clockTime(relisted), n)
		}
	})
}

// While an inspection lasts for several lists, the cache claims nothing about its pod beyond the list
// before the change. Then all these lists end.
func TestInspectionOfSeveralLists(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running") }, func(f *fixture) {
		durations := histogram(t, metrics.PLEGRelistDuration.ObserverMetric)
		f.runtime.slow("1", 3300*time.Millisecond)
		f.runtime.set("1", "c1=exited")
		changed := time.Now()
		answer := f.newerThan("1", changed)
		for range 3 {
			f.relist()
			if at := f.cache.newest("1"); at.After(changed) {
				t.Errorf("the cache claims to be correct up to %s, and the pod changed at %s", clockTime(at), clockTime(changed))
			}
		}
		f.relist()
		if status := f.answered(answer); status.ContainerStatuses[0].State != kubecontainer.ContainerStateExited {
			t.Errorf("GetNewerThan returned %+v", status.ContainerStatuses[0])
		}
		if count, sum := histogram(t, metrics.PLEGRelistDuration.ObserverMetric).since(durations); count != 4 || sum != 7.2 {
			t.Errorf("measured %d relists of %v s, want 4 of 7.2 s: 3.3, 2.3, 1.3 and 0.3 s", count, sum)
		}
	})
}

// The time of the cache advances even if there is no moment without an inspection. The runtime
// ignores contexts here: an inspection takes 1.8 s, even if nobody waits for it, and a second may
// follow.
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

// A status that the runtime returns beside an error is kept with the error, and with the time of the list.
func TestStatusBesideError(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		broken := errors.New("broken")
		partial := &kubecontainer.PodStatus{ID: "1", Name: "partial"}
		f.runtime.set("1", "c1=running")
		f.runtime.disturb("1", func(f *podFault) { f.delay, f.err, f.partial = 200*time.Millisecond, broken, partial })
		listed := time.Now().Add(500 * time.Millisecond)
		f.relist()
		if status, err := f.cache.status("1"); status != partial || err != broken { //nolint:errorlint // must be the same error
			t.Errorf("cache has %+v, %v", status, err)
		}
		if at := f.cache.newest("1"); !at.Equal(listed) {
			t.Errorf("the time of the pod is %s, want %s, that of the list", clockTime(at), clockTime(listed))
		}
	})
}

// A status with a hole is no status: its inspection has failed.
func TestStatusWithAHole(t *testing.T) {
	for what, add := range map[string]func(*kubecontainer.PodStatus){
		"container": func(s *kubecontainer.PodStatus) { s.ContainerStatuses = append(s.ContainerStatuses, nil) },
		"sandbox":   func(s *kubecontainer.PodStatus) { s.SandboxStatuses = append(s.SandboxStatuses, nil) },
	} {
		runFixture(t, nil, func(f *fixture) {
			f.runtime.set("1", "c1=running /s1=running")
			f.runtime.disturb("1", func(f *podFault) { f.added = add })
			f.relist()
			if status, err := f.cache.status("1"); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("with a nil %s the cache has %+v, %v", what, status, err)
			}
		})
	}
}

// A request for a pod without containers, because it was removed before the next relist, ends with
// a PodSync, and the pod cache forgets the pod.
func TestReinspectOfRemovedPodWithoutContainers(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", " ") }, func(f *fixture) {
		f.events()
		f.pleg.RequestReinspect("1")
		f.runtime.set("1", "")
		f.relist()
		f.expect("1 PodSync")
		if status, err := f.cache.status("1"); err != nil || status.Name != "" {
			t.Errorf("the cache has %+v, %v", status, err)
		}
	})
}
