package conform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func tryStatusInSandbox(t *trial) result {
	p := t.runPod(nil)
	t.runContainer(p, 0, "pause")
	t.runContainer(p, 0, "pause")
	resp := must(t.runtime.PodSandboxStatus(t.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id}))
	n := len(resp.GetContainersStatuses())
	if n == 0 && resp.GetTimestamp() == 0 {
		return result{NotOffered, "neither is set"}
	}
	return judge(n == 2 && resp.GetTimestamp() != 0, "%d of 2 statuses, timestamp %d", n, resp.GetTimestamp())
}

// tryStreamingLists compares both kinds of lists. Others may change pods meanwhile, so
// one agreement counts.
func tryStreamingLists(t *trial) result {
	t.runContainer(t.runPod(nil), 0, "pause")
	var streamed, unary []string
	for range 5 {
		var err error
		if streamed, err = t.streamed(t.ctx); status.Code(err) == codes.Unimplemented {
			return result{NotOffered, "Unimplemented"}
		}
		check(err)
		sandboxes := must(t.runtime.ListPodSandbox(t.ctx, &runtimeapi.ListPodSandboxRequest{}))
		containers := must(t.runtime.ListContainers(t.ctx, &runtimeapi.ListContainersRequest{}))
		unary = append(ids(sandboxes.GetItems()), ids(containers.GetContainers())...)
		slices.Sort(streamed)
		slices.Sort(unary)
		if slices.Equal(streamed, unary) {
			return judge(true, "%d items", len(unary))
		}
	}
	return judge(false, "%d items streamed, %d listed", len(streamed), len(unary))
}

// streamed returns the ids of all sandboxes and containers.
func (n *node) streamed(ctx context.Context) (all []string, err error) {
	sandboxes, err := n.runtime.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{})
	if err == nil {
		all, err = drain(sandboxes, func(r *runtimeapi.StreamPodSandboxesResponse) []string { return ids(r.GetPodSandboxes()) })
	}
	if err != nil {
		return nil, err
	}
	containers, err := n.runtime.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{})
	if err != nil {
		return nil, err
	}
	more, err := drain(containers, func(r *runtimeapi.StreamContainersResponse) []string { return ids(r.GetContainers()) })
	return append(all, more...), err
}

func drain[R any](stream grpc.ServerStreamingClient[R], ids func(*R) []string) (all []string, _ error) {
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, ids(resp)...)
	}
}

func ids[I interface{ GetId() string }](items []I) (ids []string) {
	for _, item := range items {
		ids = append(ids, item.GetId())
	}
	return ids
}

// tryFilters lists one of two pods in each way that has a filter.
func tryFilters(t *trial) result {
	t.runContainer(t.runPod(nil), 0, "pause")
	p := t.runPod(nil)
	container := t.runContainer(p, 0, "pause")
	label := map[string]string{"io.kubernetes.pod.uid": p.uid}
	inState := func(state runtimeapi.ContainerState) *runtimeapi.ContainerFilter {
		return &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: state}, LabelSelector: label}
	}
	var wrong []string
	compare := func(name string, got []string, err error, want ...string) {
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", name, err))
		} else if !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s: %d items, want %d", name, len(got), len(want)))
		}
	}
	for name, filter := range map[string]*runtimeapi.PodSandboxFilter{
		"sandboxes by label": {LabelSelector: label},
		"sandboxes by id":    {Id: p.id},
		"sandboxes by state": {State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}, LabelSelector: label},
	} {
		resp, err := t.runtime.ListPodSandbox(t.ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
		compare(name, ids(resp.GetItems()), err, p.id)
	}
	for name, filter := range map[string]*runtimeapi.ContainerFilter{
		"containers by label":         {LabelSelector: label},
		"containers by sandbox":       {PodSandboxId: p.id},
		"containers by id":            {Id: container},
		"containers by state":         inState(runtimeapi.ContainerState_CONTAINER_RUNNING),
		"containers by another state": inState(runtimeapi.ContainerState_CONTAINER_EXITED),
	} {
		want := []string{container}
		if filter.GetState().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			want = nil
		}
		resp, err := t.runtime.ListContainers(t.ctx, &runtimeapi.ListContainersRequest{Filter: filter})
		compare(name, ids(resp.GetContainers()), err, want...)
	}
	if len(wrong) > 0 {
		return judge(false, "%s", strings.Join(wrong, "; "))
	}
	return judge(true, "8 filters")
}

func tryNotFound(t *trial) result {
	const unknown = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	_, container := t.status(t.ctx, unknown)
	_, sandbox := t.runtime.PodSandboxStatus(t.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: unknown})
	kept := status.Code(container) == codes.NotFound && status.Code(sandbox) == codes.NotFound
	return judge(kept, "container %v, sandbox %v", status.Code(container), status.Code(sandbox))
}

const (
	largePods       = 72
	largeAnnotation = 250 << 10 // Kubernetes allows 256 KiB a pod
	podsAtOnce      = 4
)

// tryLargeList fills the list of sandboxes with annotations. A streamed list counts.
func tryLargeList(t *trial) result {
	annotations := map[string]string{"large": strings.Repeat("a", largeAnnotation)}
	pods := make([]*pod, largePods)
	t.each(largePods, podsAtOnce, func(t *trial, i int) { pods[i] = t.runPod(annotations) })
	_, unary := t.runtime.ListPodSandbox(t.ctx, &runtimeapi.ListPodSandboxRequest{})
	_, streamed := t.streamed(t.ctx)
	for _, p := range pods { // they would slow down what follows
		t.removePod(p)
	}
	return judge(unary == nil || streamed == nil,
		"%d MiB: unary %v, streamed %v", largePods*largeAnnotation>>20, status.Code(unary), status.Code(streamed))
}
