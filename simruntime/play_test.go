package simruntime_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// playAndChurn plays faults, and changes pods ten times a second.
func playAndChurn(ctx context.Context, rt *simruntime.Runtime, seed uint64, changes int, faults []simruntime.Fault) error {
	var group errgroup.Group
	group.Go(func() error { return rt.Play(ctx, faults...) })
	group.Go(func() error {
		return rt.Churn(ctx, simruntime.ChurnOptions{Seed: seed, Rate: 10, Pods: 5, Actions: changes})
	})
	return group.Wait()
}

// callsUnderFaults returns the answers to a client that calls every 100 ms.
func callsUnderFaults(t *testing.T, seed uint64) (answers []string) {
	faults := []simruntime.Fault{
		{RPC: "ContainerStatus", Code: codes.Internal, Probability: 0.3, From: time.Second, Until: 4 * time.Second},
		{RPC: "ContainerStatus", Malform: simruntime.NilMetadata, Probability: 0.3, From: 2 * time.Second, Until: 6 * time.Second},
		{RPC: "ListContainers", Code: codes.Unavailable, After: 4, Times: 1, Until: 8 * time.Second},
		{RPC: "ListContainers", Latency: simruntime.Latency{P50: time.Second, P99: 2 * time.Second}, From: 3 * time.Second, Until: 7 * time.Second},
	}
	simulate(t, simruntime.Options{Seed: seed}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		populate(t, rt, 5, 2)
		_, _ = client.Version(t.Context(), &cri.VersionRequest{})
		done := make(chan error)
		go func() { done <- playAndChurn(t.Context(), rt, seed, 100, faults) }()
		time.Sleep(3 * time.Microsecond) // never calls at the moment of a change
		for range 100 {
			list, err := client.ListContainers(t.Context(), &cri.ListContainersRequest{})
			answers = append(answers, fmt.Sprint(len(list.GetContainers()), status.Code(err)))
			for _, c := range list.GetContainers() {
				st, err := client.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: c.GetId()})
				answers = append(answers, fmt.Sprint(c.GetId(), st.GetStatus().GetState(), st.GetStatus().GetExitCode(), status.Code(err)))
			}
			time.Sleep(100*time.Millisecond + 7*time.Microsecond)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return answers
}

func TestSeedRepeatsFaultsAndChurn(t *testing.T) {
	first := callsUnderFaults(t, 4)
	if again := callsUnderFaults(t, 4); !slices.Equal(first, again) {
		t.Errorf("the second run differs: %d and %d answers", len(first), len(again))
	}
	if other := callsUnderFaults(t, 5); slices.Equal(first, other) {
		t.Error("another seed gives the same answers")
	}
	if !slices.ContainsFunc(first, func(answer string) bool { return !strings.HasSuffix(answer, "OK") }) {
		t.Error("no call failed: this tests nothing")
	}
}

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
	simulate(t, simruntime.Options{Seed: 1}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		populate(t, rt, 5, 2)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan []streamed)
		go func() { done <- followEvents(ctx, client) }()
		synctest.Wait()
		err := playAndChurn(t.Context(), rt, 1, 300, []simruntime.Fault{
			{RPC: "GetContainerEvents", Malform: simruntime.NilStatus, From: 10 * time.Second, Until: 20 * time.Second},
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
		cancel()
		streams := <-done
		if len(streams) != 3 || streams[0].bad+streams[2].bad > 0 || streams[1].bad == 0 || streams[1].bad != streams[1].events {
			t.Errorf("streams with events and bad ones %v, want three, and those of the second bad", streams)
		}
	})
}

// streamed counts the events of one stream, and those without a status.
type streamed struct{ events, bad int }

// followEvents opens one stream after the other until ctx ends.
func followEvents(ctx context.Context, client cri.RuntimeServiceClient) (streams []streamed) {
	for ctx.Err() == nil {
		stream, err := client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
		if err != nil {
			continue
		}
		var n streamed
		for {
			ev, err := stream.Recv()
			if err != nil {
				break
			}
			if n.events++; ev.GetPodSandboxStatus() == nil {
				n.bad++
			}
		}
		streams = append(streams, n)
	}
	return streams
}
