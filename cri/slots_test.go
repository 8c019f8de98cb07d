package cri_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// variableRuntime answers each container status after a time that may change, and never if
// the id begins with "hung".
type variableRuntime struct{ takes, inFlight, peak atomic.Int64 }

func (r *variableRuntime) containerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatusResponse, error) {
	n := r.inFlight.Add(1)
	defer r.inFlight.Add(-1)
	for p := r.peak.Load(); n > p; p = r.peak.Load() {
		r.peak.CompareAndSwap(p, n)
	}
	if strings.HasPrefix(id, "hung") {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	time.Sleep(time.Duration(r.takes.Load()))
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id}}, nil
}

// Five hung pods have more calls than there are slots. Each call that was overtaken gives
// its slot up before it is a second old.
func TestOvertakenCallsLeaveTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt variableRuntime
		rt.takes.Store(int64(10 * time.Millisecond))
		client := connect(t, &fakeRuntime{containerStatus: rt.containerStatus}, cri.Options{MaxStatusCalls: 8})
		ctx, cancel := context.WithCancel(t.Context())
		fine := func(n int) {
			if _, err := client.PodStatus(t.Context(), manyContainers(fmt.Sprint("fine", n), 2), nil); err != nil {
				t.Error(err)
			}
		}
		fine(0)
		var hung sync.WaitGroup
		start := time.Now()
		for n := range 5 {
			hung.Go(func() { _, _ = client.PodStatus(ctx, manyContainers(fmt.Sprint("hung", n), 2), nil) })
			synctest.Wait()
			fine(n)
		}
		if took, most := time.Since(start), 200*time.Millisecond; took > most {
			t.Errorf("five pods beside five hung ones took %v, want at most %v", took, most)
		}
		cancel()
		hung.Wait()
	})
}

// A runtime that becomes slow gets no more calls at once than before: none is overtaken.
func TestSlowCallsKeepTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt variableRuntime
		client := connect(t, &fakeRuntime{containerStatus: rt.containerStatus}, cri.Options{MaxStatusCalls: 4})
		for _, takes := range []time.Duration{10 * time.Millisecond, time.Second / 2} {
			rt.takes.Store(int64(takes))
			var all sync.WaitGroup
			for n := range 12 {
				all.Go(func() {
					if _, err := client.PodStatus(t.Context(), manyContainers(fmt.Sprint("fine", n), 1), nil); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		if got := rt.peak.Load(); got != 4 {
			t.Errorf("%d calls at once, want 4", got)
		}
	})
}
