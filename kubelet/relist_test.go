package kubelet_test

import (
	"errors"
	"testing"
	"time"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// A status that the runtime returns beside an error is kept with it.
func TestStatusBesideError(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		broken := errors.New("broken")
		partial := &kubecontainer.PodStatus{ID: "1", Name: "partial"}
		f.runtime.set("1", "c1=running")
		f.runtime.breakPod("1", broken)
		f.runtime.beside("1", partial)
		f.relist()
		if status, err := f.cache.Get("1"); status != partial || err != broken { //nolint:errorlint // must be the same error
			t.Errorf("cache has %+v, %v", status, err)
		}
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

// A request for a pod that has no containers any more, because it was removed before the next
// relist, ends with a PodSync, and the pod cache forgets the pod.
func TestReinspectOfRemovedPodWithoutContainers(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.setEmpty("1") }, func(f *fixture) {
		f.events()
		f.pleg.RequestReinspect("1")
		f.runtime.set("1", "")
		f.relist()
		f.expect("1 PodSync")
		if status, err := f.cache.Get("1"); err != nil || status.Name != "" {
			t.Errorf("the cache has %+v, %v", status, err)
		}
	})
}
