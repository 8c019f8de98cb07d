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

// Title: EventedPLEG stops for good after five ends of its event stream in total
//
// What happened: watchEventsChannel counts the ends of the GetContainerEvents stream, clean
// ones too. It never resets the count, and it does not wait between two attempts. One restart
// of the runtime uses up all five attempts, because they fail at once. From then on no event
// requests a relist, until the kubelet restarts. The only traces are one error in the log and
// kubelet_evented_pleg_connection_error_count.
//
// Expected: retries with backoff, and a count that starts again after a stream that worked.
//
// How to reproduce: start a kubelet with the gate EventedPLEG, restart containerd, wait until
// it is up, kill a container. The restart follows the next relist of all pods, as without the
// gate. Or copy this file to pkg/kubelet/pleg without its first line, and run the test.
//
// Version: v1.37.1. Related: #129827 describes an older EventedPLEG; its fix #129835 was
// closed. #139262 kept the count.
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
