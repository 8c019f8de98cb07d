package simruntime

import (
	"context"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (s *service) ListPodSandbox(ctx context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	resp := &cri.ListPodSandboxResponse{}
	faults := malformOf(ctx)
	if len(faults) == 0 && isAllSandboxes(req.GetFilter()) {
		setBody(resp, s.rt.allSandboxes())
		return resp, nil
	}
	resp.Items = malformSandboxes(s.rt.listSandboxes(req.GetFilter()), faults)
	return resp, nil
}

func (s *service) ListContainers(ctx context.Context, req *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	resp := &cri.ListContainersResponse{}
	faults := malformOf(ctx)
	if len(faults) == 0 && isAllContainers(req.GetFilter()) {
		setBody(resp, s.rt.allContainers())
		return resp, nil
	}
	resp.Containers = malformContainers(s.rt.listContainers(req.GetFilter()), faults)
	return resp, nil
}

func (s *service) StreamPodSandboxes(
	req *cri.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[cri.StreamPodSandboxesResponse],
) (err error) {
	ctx := stream.Context()
	c, err := s.rt.begin(ctx, "StreamPodSandboxes", req)
	defer func() { c.end(err) }()
	if err != nil {
		return err
	}
	items := malformSandboxes(s.rt.listSandboxes(req.GetFilter()), c.verdict.malform)
	if err := c.finish(ctx); err != nil {
		return err
	}
	return sendBatches(ctx, c, items, func(batch []*cri.PodSandbox) error {
		return stream.Send(&cri.StreamPodSandboxesResponse{PodSandboxes: batch})
	})
}

func (s *service) StreamContainers(
	req *cri.StreamContainersRequest, stream grpc.ServerStreamingServer[cri.StreamContainersResponse],
) (err error) {
	ctx := stream.Context()
	c, err := s.rt.begin(ctx, "StreamContainers", req)
	defer func() { c.end(err) }()
	if err != nil {
		return err
	}
	items := malformContainers(s.rt.listContainers(req.GetFilter()), c.verdict.malform)
	if err := c.finish(ctx); err != nil {
		return err
	}
	return sendBatches(ctx, c, items, func(batch []*cri.Container) error {
		return stream.Send(&cri.StreamContainersResponse{Containers: batch})
	})
}

// sendBatches sends a list in messages, as far as the faults let it.
func sendBatches[T any](ctx context.Context, c *call, items []T, send func([]T) error) error {
	spoil := c.verdict.messages // messages to come before the faults; none if 0
	for batch := range slices.Chunk(items, c.rt.opts.StreamBatch) {
		if err := send(batch); err != nil {
			return err
		}
		if spoil--; spoil == 0 {
			if err := c.verdict.serve(ctx); err != nil {
				return err
			}
		}
	}
	if spoil > 0 {
		return c.verdict.serve(ctx)
	}
	return nil
}

func isAllSandboxes(f *cri.PodSandboxFilter) bool {
	return f.GetId() == "" && f.GetState() == nil && len(f.GetLabelSelector()) == 0
}

func isAllContainers(f *cri.ContainerFilter) bool {
	return f.GetId() == "" && f.GetPodSandboxId() == "" && f.GetState() == nil && len(f.GetLabelSelector()) == 0
}

// allSandboxes is the body of the unfiltered list; it is built again only after
// a change.
func (rt *Runtime) allSandboxes() []byte {
	return cachedBody(rt, &rt.podListCache, func(s *state) []byte {
		return concatNewest(s.sandboxOrder, func(sb *sandbox) []byte { return sb.enc })
	})
}

func (rt *Runtime) allContainers() []byte {
	return cachedBody(rt, &rt.containerListCache, func(s *state) []byte {
		return concatNewest(s.containerOrder, func(c *container) []byte { return c.enc })
	})
}

func cachedBody(rt *Runtime, cache *atomic.Pointer[encodedList], build func(*state) []byte) []byte {
	rt.read()
	defer rt.mu.RUnlock()
	if l := cache.Load(); l != nil && l.generation == rt.state.generation {
		return l.body
	}
	l := &encodedList{generation: rt.state.generation, body: build(&rt.state)}
	cache.Store(l)
	return l.body
}

// listSandboxes returns the sandboxes that pass the filter, newest first.
func (rt *Runtime) listSandboxes(f *cri.PodSandboxFilter) []*cri.PodSandbox {
	rt.read()
	defer rt.mu.RUnlock()
	candidates := rt.state.sandboxOrder
	if uid := f.GetLabelSelector()[labelPodUID]; f.GetId() != "" {
		candidates = oneOrNone(rt.state.sandboxes, f.GetId())
	} else if p := rt.state.pods[uid]; p != nil {
		// The label is the kubelet's: it repeats metadata.uid.
		candidates = p.sandboxes
	}
	var out []*cri.PodSandbox
	for _, sb := range slices.Backward(candidates) {
		if f.GetState() != nil && f.GetState().GetState() != sb.item.State {
			continue
		}
		if hasLabels(sb.labels, f.GetLabelSelector()) {
			out = append(out, sb.item)
		}
	}
	return out
}

// listContainers returns the containers that pass the filter, newest first.
func (rt *Runtime) listContainers(f *cri.ContainerFilter) []*cri.Container {
	rt.read()
	defer rt.mu.RUnlock()
	candidates := rt.state.containerOrder
	switch sb := rt.state.sandboxes[f.GetPodSandboxId()]; {
	case f.GetId() != "":
		candidates = oneOrNone(rt.state.containers, f.GetId())
	case sb != nil:
		candidates = sb.containers
	default:
		if p := rt.state.pods[f.GetLabelSelector()[labelPodUID]]; p != nil {
			candidates = p.allContainers()
		}
	}
	var out []*cri.Container
	for _, c := range slices.Backward(candidates) {
		if f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sb.id {
			continue
		}
		if f.GetState() != nil && f.GetState().GetState() != c.state {
			continue
		}
		if hasLabels(c.labels, f.GetLabelSelector()) {
			out = append(out, c.item)
		}
	}
	return out
}

// allContainers of a pod, oldest first: a container never outlives the making
// of the next sandbox attempt, but two attempts may be listed at once.
func (p *pod) allContainers() []*container {
	var out []*container
	for _, sb := range p.sandboxes {
		out = append(out, sb.containers...)
	}
	slices.SortFunc(out, byCreation)
	return out
}

func oneOrNone[T any](m map[string]T, id string) []T {
	if v, ok := m[id]; ok {
		return []T{v}
	}
	return nil
}

func hasLabels(labels, want map[string]string) bool {
	for k, v := range want {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
