package simruntime_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func listPods(t *testing.T, client cri.RuntimeServiceClient, f *cri.PodSandboxFilter) []*cri.PodSandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: f})
	kit.Must(t, err)
	return resp.Items
}

func listContainers(t *testing.T, client cri.RuntimeServiceClient, f *cri.ContainerFilter) []*cri.Container {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := client.ListContainers(ctx, &cri.ListContainersRequest{Filter: f})
	kit.Must(t, err)
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
		kit.Must(t, rt.RemovePod(p.UID))
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
