package simruntime

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (s *service) ListPodSandbox(ctx context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	resp := &cri.ListPodSandboxResponse{}
	faults := malformOf(ctx)
	if len(faults) == 0 && proto.Size(req.GetFilter()) == 0 {
		setBody(resp, encodeAll(s.rt, &s.rt.state.sandboxOrder))
		return resp, nil
	}
	resp.Items = malformList(s.rt.listSandboxes(req.GetFilter()), faults)
	return resp, nil
}

func (s *service) ListContainers(ctx context.Context, req *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	resp := &cri.ListContainersResponse{}
	faults := malformOf(ctx)
	if len(faults) == 0 && proto.Size(req.GetFilter()) == 0 {
		setBody(resp, encodeAll(s.rt, &s.rt.state.containerOrder))
		return resp, nil
	}
	resp.Containers = malformList(s.rt.listContainers(req.GetFilter()), faults)
	return resp, nil
}

// listSandboxes returns the sandboxes that pass the filter, newest first.
func (rt *Runtime) listSandboxes(f *cri.PodSandboxFilter) []*cri.PodSandbox {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	var out []*cri.PodSandbox
	for _, sb := range slices.Backward(rt.state.sandboxOrder) {
		if (f.GetId() == "" || f.GetId() == sb.id()) &&
			(f.GetState() == nil || f.GetState().GetState() == sb.status.State) && hasLabels(sb.of.Labels, f.GetLabelSelector()) {
			out = append(out, sb.item())
		}
	}
	return out
}

// listContainers returns the containers that pass the filter, newest first.
func (rt *Runtime) listContainers(f *cri.ContainerFilter) []*cri.Container {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	var out []*cri.Container
	for _, c := range slices.Backward(rt.state.containerOrder) {
		if (f.GetId() == "" || f.GetId() == c.id()) && (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.sb.id()) &&
			(f.GetState() == nil || f.GetState().GetState() == c.status.State) && hasLabels(c.of.Labels, f.GetLabelSelector()) {
			out = append(out, c.item())
		}
	}
	return out
}

func hasLabels(labels, want map[string]string) bool {
	for k, v := range want {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
