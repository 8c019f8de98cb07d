package simruntime_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func listPods(t *testing.T, client cri.RuntimeServiceClient, f *cri.PodSandboxFilter) []*cri.PodSandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: f})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Items
}

func listContainers(t *testing.T, client cri.RuntimeServiceClient, f *cri.ContainerFilter) []*cri.Container {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := client.ListContainers(ctx, &cri.ListContainersRequest{Filter: f})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Containers
}

// sandboxIDs returns the ids of all sandboxes in the order of a list.
func sandboxIDs(pods []simruntime.Pod) []string {
	var all []simruntime.Sandbox
	for _, p := range pods {
		all = append(all, p.Sandboxes...)
	}
	slices.SortFunc(all, func(a, b simruntime.Sandbox) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return idsBy(all, func(s simruntime.Sandbox) string { return s.ID })
}

// containerIDs returns the ids of all containers in the order of a list.
func containerIDs(pods []simruntime.Pod) []string {
	var all []simruntime.Container
	for _, p := range pods {
		all = append(all, p.Containers...)
	}
	slices.SortFunc(all, func(a, b simruntime.Container) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return idsBy(all, func(c simruntime.Container) string { return c.ID })
}

func idsBy[T any](items []T, id func(T) string) (out []string) {
	for _, it := range items {
		out = append(out, id(it))
	}
	return out
}

type withID interface{ GetId() string }

func ids[T withID](items []T) []string { return idsBy(items, T.GetId) }

func TestListsHonourFilters(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		pods := populate(t, rt, 3, 2)
		if err := rt.StopSandbox(pods[1].Sandboxes[0].ID); err != nil {
			t.Fatal(err)
		}
		one := pods[2]
		byUID := map[string]string{"io.kubernetes.pod.uid": one.UID}
		ready := &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}
		exited := &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_EXITED}

		for name, tc := range map[string]struct {
			filter *cri.PodSandboxFilter
			want   []string
		}{
			"nil":           {nil, sandboxIDs(pods)},
			"empty":         {&cri.PodSandboxFilter{}, sandboxIDs(pods)},
			"ready":         {&cri.PodSandboxFilter{State: ready}, sandboxIDs([]simruntime.Pod{pods[0], pods[2]})},
			"id":            {&cri.PodSandboxFilter{Id: one.Sandboxes[0].ID}, []string{one.Sandboxes[0].ID}},
			"unknown id":    {&cri.PodSandboxFilter{Id: "none"}, nil},
			"uid":           {&cri.PodSandboxFilter{LabelSelector: byUID}, []string{one.Sandboxes[0].ID}},
			"uid and state": {&cri.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": pods[1].UID}, State: ready}, nil},
			"unknown uid":   {&cri.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": "none"}}, nil},
		} {
			if got := ids(listPods(t, client, tc.filter)); !slices.Equal(got, tc.want) {
				t.Errorf("sandboxes by %s: got %v, want %v", name, got, tc.want)
			}
		}
		for name, tc := range map[string]struct {
			filter *cri.ContainerFilter
			want   []string
		}{
			"nil":            {nil, containerIDs(pods)},
			"exited":         {&cri.ContainerFilter{State: exited}, containerIDs(pods[1:2])},
			"id":             {&cri.ContainerFilter{Id: one.Containers[1].ID}, []string{one.Containers[1].ID}},
			"sandbox":        {&cri.ContainerFilter{PodSandboxId: one.Sandboxes[0].ID}, containerIDs(pods[2:])},
			"other sandbox":  {&cri.ContainerFilter{PodSandboxId: "none", Id: one.Containers[1].ID}, nil},
			"uid":            {&cri.ContainerFilter{LabelSelector: byUID}, containerIDs(pods[2:])},
			"container name": {&cri.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.container.name": "none"}}, nil},
		} {
			if got := ids(listContainers(t, client, tc.filter)); !slices.Equal(got, tc.want) {
				t.Errorf("containers by %s: got %v, want %v", name, got, tc.want)
			}
		}
	})
}

func TestStreamsComeInBatches(t *testing.T) {
	for _, tc := range []struct{ pods, batch, wantMessages int }{
		{0, 3, 0}, {3, 3, 1}, {7, 3, 3}, {7, 0, 1},
	} {
		t.Run(fmt.Sprintf("pods=%d/batch=%d", tc.pods, tc.batch), func(t *testing.T) {
			opts := simruntime.Options{StreamBatch: tc.batch}
			simulate(t, opts, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
				populate(t, rt, tc.pods, 1)
				messages, items := drainSandboxes(t, client)
				if messages != tc.wantMessages || !slices.Equal(items, sandboxIDs(rt.Pods())) {
					t.Errorf("sandboxes: %d messages with %v", messages, items)
				}
				messages, items = drainContainers(t, client)
				if messages != tc.wantMessages || !slices.Equal(items, containerIDs(rt.Pods())) {
					t.Errorf("containers: %d messages with %v", messages, items)
				}
			})
		})
	}
}

func drainSandboxes(t *testing.T, client cri.RuntimeServiceClient) (messages int, items []string) {
	t.Helper()
	stream, err := client.StreamPodSandboxes(t.Context(), &cri.StreamPodSandboxesRequest{})
	return drain(t, stream, err, (*cri.StreamPodSandboxesResponse).GetPodSandboxes)
}

func drainContainers(t *testing.T, client cri.RuntimeServiceClient) (messages int, items []string) {
	t.Helper()
	stream, err := client.StreamContainers(t.Context(), &cri.StreamContainersRequest{})
	return drain(t, stream, err, (*cri.StreamContainersResponse).GetContainers)
}

// drain returns the number of messages of a stream and the ids of their items.
func drain[R any, T withID](
	t *testing.T, stream grpc.ServerStreamingClient[R], err error, items func(*R) []T,
) (messages int, all []string) {
	t.Helper()
	for ; err == nil; messages++ {
		var resp *R
		if resp, err = stream.Recv(); err != nil {
			break
		}
		all = append(all, ids(items(resp))...)
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return messages, all
}

// A reader sees all of an update or nothing of it.
func TestUpdateIsAtomic(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{})
	client := overSocket(t, rt)
	const pods, rounds = 20, 15
	populate(t, rt, pods, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				resp, err := client.ListContainers(ctx, &cri.ListContainersRequest{})
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				attempts := map[uint32]int{}
				for _, c := range resp.Containers {
					attempts[c.Metadata.Attempt]++
				}
				for attempt, n := range attempts {
					if n != pods {
						t.Errorf("%d containers of attempt %d, want %d", n, attempt, pods)
						return
					}
				}
			}
		})
	}
	for range rounds {
		if got := rt.Burst(pods, simruntime.Replace); len(got) != pods {
			t.Errorf("burst changed %d pods, want %d", len(got), pods)
		}
		listContainers(t, client, nil)
	}
	cancel()
	readers.Wait()
}

func TestDeletedSandboxLingers(t *testing.T) {
	opts := simruntime.Options{DeletedLinger: 4 * time.Millisecond}
	simulate(t, opts, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		p := populate(t, rt, 1, 1)[0]
		if err := rt.RemovePod(p.UID); err != nil {
			t.Fatal(err)
		}
		got := listPods(t, client, nil)
		if len(got) != 1 || got[0].State != cri.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("right after the removal: %v, want the sandbox NOTREADY", got)
		}
		if len(rt.Pods()) != 0 || len(listContainers(t, client, nil)) != 0 {
			t.Error("the pod or its container is still there")
		}
		if err := rt.RemovePod(p.UID); !errors.Is(err, simruntime.ErrNotFound) {
			t.Errorf("removing it again: %v, want ErrNotFound", err)
		}
		time.Sleep(4 * time.Millisecond)
		if got := listPods(t, client, nil); len(got) != 0 {
			t.Errorf("after the linger: %v, want nothing", got)
		}
	})
}
