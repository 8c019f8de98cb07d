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

// encoded is an object as an element of a list response and as the whole response
// to a status call. An update encodes the objects that it changes, so that
// listing thousands of them copies bytes.
type encoded struct{ element, answer []byte }

func (e *encoded) listElement() []byte { return e.element }

// marshal encodes a message of the runtime itself.
func marshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil { // only a string that is not UTF-8 causes it
		panic("simruntime: encode: " + err.Error())
	}
	return b
}

// encodeAll returns the body of an unfiltered list.
func encodeAll[T interface{ listElement() []byte }](rt *Runtime, order *[]T) []byte {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	elements := make([][]byte, 0, len(*order))
	for _, o := range slices.Backward(*order) {
		elements = append(elements, o.listElement())
	}
	return slices.Concat(elements...)
}

// setBody makes msg encode to body: the bytes of unknown fields are written
// without a change.
func setBody(msg proto.Message, body []byte) {
	if len(body) > 0 {
		msg.ProtoReflect().SetUnknown(body)
	}
}

// listSandboxes returns the sandboxes that pass the filter, newest first.
func (rt *Runtime) listSandboxes(f *cri.PodSandboxFilter) []*cri.PodSandbox {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	var out []*cri.PodSandbox
	for _, sb := range slices.Backward(rt.state.sandboxOrder) {
		if (f.GetId() == "" || f.GetId() == sb.id()) &&
			(f.GetState() == nil || f.GetState().GetState() == sb.item.State) && hasLabels(sb.item.Labels, f.GetLabelSelector()) {
			out = append(out, sb.item)
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
		if (f.GetId() == "" || f.GetId() == c.id()) && (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.item.PodSandboxId) &&
			(f.GetState() == nil || f.GetState().GetState() == c.item.State) && hasLabels(c.item.Labels, f.GetLabelSelector()) {
			out = append(out, c.item)
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
