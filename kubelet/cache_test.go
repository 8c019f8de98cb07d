package kubelet_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// A removed pod gets times of its own while another pod is being inspected.
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
			f.answered(gone)
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

// A status that the runtime returns beside an error is kept with the error.
func TestStatusBesideError(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		broken := errors.New("broken")
		partial := &kubecontainer.PodStatus{ID: "1", Name: "partial"}
		f.runtime.set("1", "c1=running")
		f.runtime.disturb("1", func(f *podFault) { f.err, f.partial = broken, partial })
		f.relist()
		if status, err := f.cache.status("1"); status != partial || err != broken { //nolint:errorlint // must be the same error
			t.Errorf("cache has %+v, %v", status, err)
		}
	})
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
