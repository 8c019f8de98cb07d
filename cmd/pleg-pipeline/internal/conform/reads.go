package conform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func tryStatusInSandbox(ctx context.Context, s *suite, p *pod) (string, error) {
	for range 2 {
		if _, err := s.node.runContainer(ctx, p, 0, "pause"); err != nil {
			return "", err
		}
	}
	resp, err := s.node.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	switch n := len(resp.GetContainersStatuses()); {
	case err != nil:
		return "", err
	case n == 0 && resp.GetTimestamp() == 0:
		return "neither is set", errNotOffered
	default:
		return judge(n == 2 && resp.GetTimestamp() != 0, "%d of 2 statuses, timestamp %d", n, resp.GetTimestamp())
	}
}

// tryStreamingLists compares both kinds of lists. Others may change pods meanwhile, so
// one agreement counts.
func tryStreamingLists(ctx context.Context, s *suite, p *pod) (string, error) {
	if _, err := s.node.runContainer(ctx, p, 0, "pause"); err != nil {
		return "", err
	}
	var streamed, unary []string
	for range 5 {
		var err, unaryErr error
		streamed, err = s.node.streamed(ctx)
		if status.Code(err) == codes.Unimplemented {
			return "Unimplemented", errNotOffered
		}
		unary, unaryErr = s.node.listed(ctx)
		if err := errors.Join(err, unaryErr); err != nil {
			return "", err
		}
		if slices.Equal(streamed, unary) {
			return judge(true, "%d items", len(unary))
		}
	}
	return judge(false, "%d items streamed, %d listed", len(streamed), len(unary))
}

// listed returns the ids of all sandboxes and containers.
func (n *node) listed(ctx context.Context) ([]string, error) {
	sandboxes, err := n.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	containers, err := n.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	return slices.Sorted(slices.Values(slices.Concat(ids(sandboxes.GetItems()), ids(containers.GetContainers())))), nil
}

func (n *node) streamed(ctx context.Context) ([]string, error) {
	sandboxes, err := n.runtime.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{})
	if err != nil {
		return nil, err
	}
	all, err := drain(sandboxes, func(r *runtimeapi.StreamPodSandboxesResponse) []string { return ids(r.GetPodSandboxes()) })
	if err != nil {
		return nil, err
	}
	containers, err := n.runtime.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{})
	if err != nil {
		return nil, err
	}
	more, err := drain(containers, func(r *runtimeapi.StreamContainersResponse) []string { return ids(r.GetContainers()) })
	return slices.Sorted(slices.Values(slices.Concat(all, more))), err
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
func tryFilters(ctx context.Context, s *suite, _ *pod) (string, error) {
	n := s.node
	var pods [2]*pod
	var containers [2]string
	for i := range pods {
		var err error
		if pods[i], err = n.runPod(ctx, nil); err != nil {
			return "", err
		}
		if containers[i], err = n.runContainer(ctx, pods[i], 0, "pause"); err != nil {
			return "", err
		}
	}
	label := map[string]string{"io.kubernetes.pod.uid": pods[0].uid}
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	exited := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}
	var wrong []string
	check := func(name string, got []string, err error, want ...string) {
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", name, err))
		} else if !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s: %d items, want %d", name, len(got), len(want)))
		}
	}
	for name, filter := range map[string]*runtimeapi.PodSandboxFilter{
		"sandboxes by label": {LabelSelector: label},
		"sandboxes by id":    {Id: pods[0].id},
		"sandboxes by state": {State: ready, LabelSelector: label},
	} {
		resp, err := n.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
		check(name, ids(resp.GetItems()), err, pods[0].id)
	}
	for name, filter := range map[string]*runtimeapi.ContainerFilter{
		"containers by label":   {LabelSelector: label},
		"containers by sandbox": {PodSandboxId: pods[0].id},
		"containers by id":      {Id: containers[0]},
		"containers by state":   {State: running, LabelSelector: label},
	} {
		resp, err := n.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
		check(name, ids(resp.GetContainers()), err, containers[0])
	}
	resp, err := n.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{State: exited, LabelSelector: label}})
	check("containers by another state", ids(resp.GetContainers()), err)
	if len(wrong) > 0 {
		return judge(false, "%s", strings.Join(wrong, "; "))
	}
	return judge(true, "8 filters")
}

func tryNotFound(ctx context.Context, s *suite, _ *pod) (string, error) {
	const unknown = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	_, container := s.node.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: unknown})
	_, sandbox := s.node.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: unknown})
	kept := status.Code(container) == codes.NotFound && status.Code(sandbox) == codes.NotFound
	return judge(kept, "container %v, sandbox %v", status.Code(container), status.Code(sandbox))
}

const (
	largePods       = 72
	largeAnnotation = 250 << 10 // Kubernetes allows 256 KiB a pod
	podsAtOnce      = 4
)

// tryLargeList fills the list of sandboxes with annotations. A streamed list counts.
func tryLargeList(ctx context.Context, s *suite, _ *pod) (string, error) {
	annotations := map[string]string{"large": strings.Repeat("a", largeAnnotation)}
	pods := make([]*pod, largePods)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(podsAtOnce)
	for i := range pods {
		g.Go(func() (err error) {
			pods[i], err = s.node.runPod(gctx, annotations)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return "", err
	}
	_, unary := s.node.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	_, streamed := s.node.streamed(ctx)
	var errs []error
	for _, p := range pods { // they would slow down what follows
		errs = append(errs, s.node.removePod(ctx, p))
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return judge(unary == nil || streamed == nil,
		"%d MiB: unary %v, streamed %v", largePods*largeAnnotation>>20, status.Code(unary), status.Code(streamed))
}
