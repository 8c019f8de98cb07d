package simruntime

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (s *service) ListPodSandbox(ctx context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	resp := &cri.ListPodSandboxResponse{}
	var body []byte
	resp.Items, body = list(ctx, s.rt, req.GetFilter(), SandboxMatches, func(sb *sandbox, each func(*cri.PodSandbox, encoded)) {
		each(sb.item, sb.encoded)
	})
	setBody(resp, body)
	return resp, nil
}

func (s *service) ListContainers(ctx context.Context, req *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	resp := &cri.ListContainersResponse{}
	var body []byte
	resp.Containers, body = list(ctx, s.rt, req.GetFilter(), ContainerMatches, func(sb *sandbox, each func(*cri.Container, encoded)) {
		for _, c := range slices.Backward(sb.containers) {
			each(c.item, c.encoded)
		}
	})
	setBody(resp, body)
	return resp, nil
}

// list returns the items that pass the filter, pods newest first: as messages or, for the whole
// list, as bytes.
func list[M listed, F proto.Message](
	ctx context.Context, rt *Runtime, filter F, matches func(F, M) bool, of func(*sandbox, func(M, encoded)),
) (items []M, body []byte) {
	faults := malformOf(ctx)
	whole := len(faults) == 0 && proto.Size(filter) == 0
	var elements [][]byte
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	for _, sb := range slices.Backward(rt.state.sandboxes) {
		of(sb, func(m M, e encoded) {
			switch {
			case whole:
				elements = append(elements, e.element)
			case matches(filter, m):
				items = append(items, m)
			}
		})
	}
	return malformList(items, faults), slices.Concat(elements...)
}

// SandboxMatches reports whether a sandbox passes a filter, which may be nil.
func SandboxMatches(f *cri.PodSandboxFilter, s *cri.PodSandbox) bool {
	return (f.GetId() == "" || f.GetId() == s.GetId()) &&
		(f.GetState() == nil || f.GetState().GetState() == s.GetState()) && hasLabels(s.GetLabels(), f.GetLabelSelector())
}

// ContainerMatches reports whether a container passes a filter, which may be nil.
func ContainerMatches(f *cri.ContainerFilter, c *cri.Container) bool {
	return (f.GetId() == "" || f.GetId() == c.GetId()) && (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.GetPodSandboxId()) &&
		(f.GetState() == nil || f.GetState().GetState() == c.GetState()) && hasLabels(c.GetLabels(), f.GetLabelSelector())
}

func hasLabels(labels, want map[string]string) bool {
	for k, v := range want {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
