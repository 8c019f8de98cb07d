package kubelet_test

import (
	"context"
	"testing"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
)

// announcing is a runtime service with an event stream.
type announcing struct {
	internalapi.RuntimeService
	events chan *runtimeapi.ContainerEventResponse
}

func (a *announcing) GetContainerEvents(ctx context.Context, to chan *runtimeapi.ContainerEventResponse, opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	opened(nil)
	for {
		select {
		case e := <-a.events:
			to <- e
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// With the gate EventedPLEG on, the kubelet's EventedPLEG requests a relist of the pod
// whose container ended, and the pod cache refuses older statuses.
func TestEventedPLEG(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.EventedPLEG, true)
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running /s1=running") }, func(f *fixture) {
		f.events()
		ctx, cancel := context.WithCancel(f.t.Context())
		defer f.settle() // until the watcher has ended
		defer cancel()
		service := &announcing{events: make(chan *runtimeapi.ContainerEventResponse)}
		pleg.NewEventedPLEG(service, f.pleg, 5).Start(ctx)
		f.runtime.set("1", "c1=exited /s1=running")
		service.events <- &runtimeapi.ContainerEventResponse{
			ContainerId:        "c1",
			ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
			PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "1"}},
		}
		announced := time.Now()
		f.settle()
		f.expect("1 Died c1")
		if status, err := f.cache.Get("1"); err != nil || status.TimeStamp.Before(announced) {
			t.Errorf("cache has %+v, %v", status, err)
		}
		f.runtime.set("1", "c2=running /s1=running")
		f.relist()
		f.expect("1 Removed c1", "1 Started c2")
		if status, err := f.cache.Get("1"); err != nil || len(status.ContainerStatuses) != 1 || status.ContainerStatuses[0].ID.ID != "c2" {
			t.Errorf("cache has %+v, %v after the relist", status, err)
		}
	})
}
