package conform_test

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (f *fake) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.containers[req.GetContainerId()]
	if st == nil {
		return nil, status.Error(cmp.Or(f.unknown, codes.NotFound), "unknown")
	}
	answer := proto.CloneOf(st)
	if f.firstExit != nil && st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && st.GetImageRef() == "" {
		f.firstExit(answer)
		st.ImageRef = "asked"
	}
	return &runtimeapi.ContainerStatusResponse{Status: answer}, nil
}

func (f *fake) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := req.GetPodSandboxId()
	if f.sandboxes[id] == nil {
		return nil, status.Error(cmp.Or(f.unknown, codes.NotFound), "unknown")
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: proto.CloneOf(f.sandboxes[id]), ContainersStatuses: f.of(id), Timestamp: time.Now().UnixNano()}, nil
}

func matches(labels, selector map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (f *fake) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.maxList > 0 && len(f.sandboxes) > f.maxList && req.GetFilter() == nil {
		return nil, status.Error(codes.ResourceExhausted, "too large")
	}
	resp, filter := &runtimeapi.ListPodSandboxResponse{}, req.GetFilter()
	for _, s := range f.sandboxes {
		if matches(s.GetLabels(), filter.GetLabelSelector()) && (filter.GetId() == "" || filter.GetId() == s.GetId()) {
			resp.Items = append(resp.Items, &runtimeapi.PodSandbox{Id: s.GetId(), Metadata: s.GetMetadata(), Labels: s.GetLabels(), State: s.GetState()})
		}
	}
	return resp, nil
}

func (f *fake) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp, filter := &runtimeapi.ListContainersResponse{}, req.GetFilter()
	for id, c := range f.containers {
		ok := matches(c.GetLabels(), filter.GetLabelSelector()) && (filter.GetId() == "" || filter.GetId() == id)
		ok = ok && (filter.GetPodSandboxId() == "" || filter.GetPodSandboxId() == f.configs[id].GetPodSandboxId())
		if ok && (filter.GetState() == nil || filter.GetState().GetState() == c.GetState()) {
			resp.Containers = append(resp.Containers, &runtimeapi.Container{Id: id, Labels: c.GetLabels(), State: c.GetState()})
		}
	}
	if f.list != nil {
		f.list(resp)
	}
	return resp, nil
}

func (f *fake) StreamPodSandboxes(_ *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	resp, err := f.ListPodSandbox(stream.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	return stream.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: resp.GetItems()})
}

func (f *fake) StreamContainers(_ *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	f.mu.Lock()
	var all []*runtimeapi.Container
	for id := range f.containers {
		all = append(all, &runtimeapi.Container{Id: id})
	}
	f.mu.Unlock()
	return stream.Send(&runtimeapi.StreamContainersResponse{Containers: all})
}
