package simruntime_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestConcurrentCallsAndChanges is for the race detector. In the end no call is in
// flight and the lists agree with the pods.
func TestConcurrentCallsAndChanges(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{Seed: 9, DeletedLinger: ms})
	rt.SetMaxConcurrent(4)
	populate(t, rt, 20, 2)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	kit.Run(t, func(ctx context.Context) error { return rt.Serve(ctx, l) })
	client := dial(t, "unix:"+path, grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		if err := rt.Churn(ctx, simruntime.ChurnOptions{Rate: 500}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Churn: %v", err)
		}
	})
	for range 3 {
		all.Go(func() { readALot(ctx, client) })
	}
	all.Go(func() { changeFaults(ctx, rt) })
	all.Wait()

	rt.ClearAll()
	if err := rt.SetEventFaults(simruntime.EventFaults{}); err != nil {
		t.Error(err)
	}
	for len(listPods(t, client, nil)) != len(sandboxIDs(rt.Pods())) {
		runtime.Gosched() // a deleted sandbox lingers for a millisecond
	}
	if got, want := ids(listContainers(t, client, nil)), containerIDs(rt.Pods()); !slices.Equal(got, want) {
		t.Errorf("%d containers listed, want %d", len(got), len(want))
	}
	for rt.Stats().Arrived != 0 {
		listPods(t, client, nil) // cancelled calls are leaving
	}
	if s := rt.Stats(); s.PeakInFlight > 4 {
		t.Errorf("%d calls executed at once, the bound is 4", s.PeakInFlight)
	}
}

// readALot ignores errors: they are injected.
func readALot(ctx context.Context, client cri.RuntimeServiceClient) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 20*ms)
		if resp, err := client.ListContainers(call, &cri.ListContainersRequest{}); err == nil {
			for _, c := range resp.Containers[:min(3, len(resp.Containers))] {
				_, _ = client.ContainerStatus(call, &cri.ContainerStatusRequest{ContainerId: c.Id})
			}
		}
		if stream, err := client.GetContainerEvents(call, &cri.GetEventsRequest{}); err == nil {
			for err == nil {
				_, err = stream.Recv()
			}
		}
		cancel()
	}
}

// changeFaults injects and clears faults. It ignores errors, since the faults are
// valid.
func changeFaults(ctx context.Context, rt *simruntime.Runtime) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 0; ctx.Err() == nil; n++ {
		id, _ := rt.Inject(simruntime.Fault{
			RPC: "ContainerStatus", Probability: 0.5, Hang: n%2 == 0, Malform: simruntime.NilMetadata,
			Latency: simruntime.Latency{P50: time.Duration(rng.IntN(1000)) * time.Microsecond},
		})
		_ = rt.SetEventFaults(simruntime.EventFaults{
			Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Replay: 5,
		})
		rt.BreakEvents()
		rt.Burst(3, simruntime.Replace)
		rt.Stats()
		rt.Clear(id)
	}
}
