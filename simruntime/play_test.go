package simruntime_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestPlayClearsFaults(t *testing.T) {
	for _, cancelAfter := range []time.Duration{time.Second, time.Hour} {
		simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
			pod := populate(t, rt, 1, 1)[0]
			hung := make(chan error)
			ctx, cancel := context.WithTimeout(t.Context(), cancelAfter)
			defer cancel()
			go func() {
				time.Sleep(time.Millisecond) // of the bubble; Play has begun
				_, err := client.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod.Sandboxes[0].ID})
				hung <- err
			}()
			err := rt.Play(ctx,
				simruntime.Fault{RPC: "ContainerStatus", Code: codes.Internal, Until: 5 * time.Second},
				simruntime.Fault{RPC: "PodSandboxStatus", Hang: true, Until: 10 * time.Second},
			)
			if (err != nil) != (cancelAfter == time.Second) {
				t.Errorf("Play = %v", err)
			}
			if err := <-hung; err != nil {
				t.Errorf("the call that hung: %v", err)
			}
			if code, _ := statusOf(t.Context(), client, pod.Containers[0].ID); code != codes.OK {
				t.Errorf("after the end: %v", code)
			}
		})
	}
}

// TestPlayWaitsForFirstCall and has faults without From hold for it.
func TestPlayWaitsForFirstCall(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		id := populate(t, rt, 1, 1)[0].Containers[0].ID
		done := make(chan error)
		go func() {
			done <- rt.Play(t.Context(),
				simruntime.Fault{RPC: "ContainerStatus", Code: codes.Internal, Times: 1, Until: time.Second},
				simruntime.Fault{RPC: "ContainerStatus", Code: codes.Unknown, From: 2 * time.Second, Until: 3 * time.Second},
			)
		}()
		time.Sleep(time.Hour)
		for _, want := range []codes.Code{codes.Internal, codes.OK, codes.Unknown, codes.OK} {
			if got, _ := statusOf(t.Context(), client, id); got != want {
				t.Errorf("%v, want %v", got, want)
			}
			time.Sleep(1050 * time.Millisecond)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestPlayBreaksEventStreams when a fault of the events begins and when it ends.
func TestPlayBreaksEventStreams(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		done := make(chan error)
		go func() {
			done <- rt.Play(t.Context(), simruntime.Fault{
				RPC: "GetContainerEvents", Malform: simruntime.NilStatus, From: 10 * time.Second, Until: 20 * time.Second,
			})
		}()
		for i, bad := range []bool{false, true, false} {
			w := watch(t, client)
			addAndRemove(t, rt)
			w.seen()
			for _, ev := range w.events {
				if (ev.GetPodSandboxStatus() == nil) != bad {
					t.Errorf("event %v has no status, want that to be %t", ev, bad)
				}
			}
			time.Sleep(10*time.Second + time.Millisecond)
			if i < 2 && status.Code(w.wait()) != codes.Unavailable {
				t.Errorf("stream %d has ended with %v", i, w.err)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
