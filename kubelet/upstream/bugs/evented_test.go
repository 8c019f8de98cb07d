//go:build bugs

package pleg_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
)

// restarting is a runtime whose event streams end cleanly and at once five times. The sixth
// has an event.
type restarting struct {
	internalapi.RuntimeService
	streams atomic.Int32
}

func (r *restarting) GetContainerEvents(ctx context.Context, to chan *runtimeapi.ContainerEventResponse, _ func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	if r.streams.Add(1) > 5 {
		to <- &runtimeapi.ContainerEventResponse{
			ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
			PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "pod"}},
		}
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

type relister struct{ requests atomic.Int32 }

func (r *relister) RequestRelist(klog.Logger, types.UID) { r.requests.Add(1) }

// Title: EventedPLEG stops for good after five ends of its stream, without a pause
//
// What happens: watchEventsChannel counts the ends of the GetContainerEvents stream, clean
// ones too. It never resets the count, and it does not wait between two attempts. One restart
// of the runtime uses up all five attempts, because they fail at once. From then on the fast
// path for container terminations is off until the kubelet restarts. One error line in the
// log is the only trace.
//
// Expected: retries with backoff, and a count that a stream that worked resets. Related:
// #129827; its fix #129835 was closed.
func TestEventedPLEGSurvivesFiveEndsOfItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
		defer cancel()
		service, generic := &restarting{}, &relister{}
		began := time.Now()
		pleg.NewEventedPLEG(service, generic, 5).Start(ctx) // the kubelet's eventedPlegMaxStreamRetries
		synctest.Wait()
		if n := service.streams.Load(); n >= 5 && time.Since(began) == 0 {
			t.Errorf("%d streams were opened without a pause", n)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := generic.requests.Load(); n != 1 {
			t.Errorf("after a day: %d streams, and %d of 1 event has led to a relist", service.streams.Load(), n)
		}
	})
}
