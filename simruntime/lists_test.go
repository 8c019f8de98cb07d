package simruntime_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func listPods(t *testing.T, client cri.RuntimeServiceClient) []*cri.PodSandbox {
	t.Helper()
	resp, err := client.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	kit.Must(t, err)
	return resp.Items
}

func listContainers(t *testing.T, client cri.RuntimeServiceClient) []*cri.Container {
	t.Helper()
	resp, err := client.ListContainers(t.Context(), &cri.ListContainersRequest{})
	kit.Must(t, err)
	return resp.Containers
}

// idsOf returns the ids of all sandboxes and containers.
func idsOf(pods []*pleg.PodStatus) (ids []string) {
	for _, p := range pods {
		ids = append(ids, string(p.Sandboxes[0].ID))
		for _, c := range p.Containers {
			ids = append(ids, string(c.ID))
		}
	}
	return ids
}

// What differs in any field of a filter that is set does not pass it.
func TestFilters(t *testing.T) {
	labels := map[string]string{"app": "web", "empty": ""}
	pod := &cri.PodSandbox{Id: "s", State: cri.PodSandboxState_SANDBOX_NOTREADY, Labels: labels}
	container := &cri.Container{Id: "c", PodSandboxId: "s", State: cri.ContainerState_CONTAINER_EXITED, Labels: labels}
	type filters struct {
		sandbox   *cri.PodSandboxFilter
		container *cri.ContainerFilter
	}
	ofState := func(s cri.PodSandboxState, c cri.ContainerState) filters {
		return filters{&cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: s}}, &cri.ContainerFilter{State: &cri.ContainerStateValue{State: c}}}
	}
	with := func(labels map[string]string) filters {
		return filters{&cri.PodSandboxFilter{LabelSelector: labels}, &cri.ContainerFilter{LabelSelector: labels}}
	}
	for want, rows := range map[bool][]filters{
		true: {
			{},
			{&cri.PodSandboxFilter{Id: "s"}, &cri.ContainerFilter{Id: "c", PodSandboxId: "s"}},
			ofState(pod.State, container.State),
			with(labels), with(map[string]string{"app": "web"}), with(map[string]string{"empty": ""}),
		},
		false: {
			{&cri.PodSandboxFilter{Id: "c"}, &cri.ContainerFilter{Id: "s"}},
			{&cri.PodSandboxFilter{Id: "t"}, &cri.ContainerFilter{PodSandboxId: "t"}},
			ofState(0, 0),
			with(map[string]string{"app": "db"}), with(map[string]string{"app": ""}), with(map[string]string{"empty": "web"}),
			with(map[string]string{"tier": "web"}), with(map[string]string{"tier": ""}), with(map[string]string{"app": "web", "tier": "web"}),
		},
	} {
		for _, f := range rows {
			if simruntime.SandboxMatches(f.sandbox, pod) != want || simruntime.ContainerMatches(f.container, container) != want {
				t.Errorf("the filters %v and %v: want that the sandbox and the container pass: %t", f.sandbox, f.container, want)
			}
		}
	}
}

// An answer may have 16 MiB, or as much as the option says.
func TestAnswersAreBounded(t *testing.T) {
	for bound, sizes := range map[int][2]int{0: {15 << 20, 2 << 20}, 100 << 10: {90 << 10, 20 << 10}} {
		simulate(t, simruntime.Options{MaxMessageBytes: bound}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
			for n, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
				rt.AddPod(simruntime.PodSpec{Annotations: map[string]string{"large": strings.Repeat("x", sizes[n])}})
				if _, err := client.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{}, grpc.MaxCallRecvMsgSize(32<<20)); status.Code(err) != want {
					t.Errorf("a bound of %d: the list of %d pods ended with %v, want %v", bound, n+1, err, want)
				}
			}
		})
	}
}

// A reader sees a whole update or nothing.
func TestUpdateIsAtomic(t *testing.T) {
	rt := simruntime.New(simruntime.Options{})
	client := overBufconn(t, rt)
	const pods, rounds = 20, 15
	looks := make(chan int)
	go func() {
		looks <- len(rt.Pods())
		for {
			if n := len(rt.Pods()); n > 0 {
				looks <- n
				return
			}
		}
	}()
	<-looks
	rt.Populate(simruntime.Population{Pods: pods, Containers: 1})
	if n := <-looks; n != pods {
		t.Errorf("%d pods while %d were added in one update", n, pods)
	}
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
		listContainers(t, client)
	}
	cancel()
	readers.Wait()
}

func TestDeletedSandboxLingers(t *testing.T) {
	opts := simruntime.Options{DeletedLinger: 4 * time.Millisecond}
	simulate(t, opts, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		p := rt.Populate(simruntime.Population{Pods: 1, Containers: 1})[0]
		kit.Must(t, rt.RemovePod(p.UID))
		got := listPods(t, client)
		if len(got) != 1 || got[0].State != cri.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("right after the removal: %v, want the sandbox NOTREADY", got)
		}
		if len(rt.Pods()) != 0 || len(listContainers(t, client)) != 0 {
			t.Error("the pod or its container is still there")
		}
		if err := rt.RemovePod(p.UID); !errors.Is(err, simruntime.ErrNotFound) {
			t.Errorf("removing it again: %v, want ErrNotFound", err)
		}
		if got := rt.Burst(1, simruntime.Remove); len(got) > 0 {
			t.Errorf("a burst removed %q again", got)
		}
		again := rt.AddPod(simruntime.PodSpec{UID: p.UID})
		time.Sleep(4 * time.Millisecond)
		synctest.Wait()
		if got := listPods(t, client); len(got) != 1 || got[0].Id != string(again.Sandboxes[0].ID) || rt.Pod(p.UID) == nil {
			t.Errorf("after the linger: %v, want only the new sandbox of the pod", got)
		}
	})
}
