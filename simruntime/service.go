package simruntime

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Service returns the CRI of the runtime, for a server of the caller's: its calls are not counted,
// and faults and the limit do not affect them, except GetContainerEvents.
func (rt *Runtime) Service() cri.RuntimeServiceServer { return &service{rt: rt} }

// service is the CRI of a Runtime. Other methods answer Unimplemented.
type service struct {
	cri.UnimplementedRuntimeServiceServer
	rt *Runtime
}

func (s *service) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{
		Version: "0.1.0", RuntimeName: "simruntime", RuntimeVersion: "0.1.0", RuntimeApiVersion: "v1",
	}, nil
}

func (s *service) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: true},
		{Type: cri.NetworkReady, Status: true},
	}}}, nil
}

func (s *service) PodSandboxStatus(ctx context.Context, req *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	s.rt.mu.RLock()
	defer s.rt.mu.RUnlock()
	sb, ok := s.rt.state.byID[req.GetPodSandboxId()].(*sandbox)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "sandbox %s: not found", req.GetPodSandboxId())
	}
	if faults := malformOf(ctx); len(faults) > 0 {
		return &cri.PodSandboxStatusResponse{Status: malformStatus(sb.status, faults)}, nil
	}
	if s.rt.opts.StatusesInSandbox {
		resp := &cri.PodSandboxStatusResponse{Status: proto.CloneOf(sb.status), Timestamp: time.Now().UnixNano()}
		for _, c := range sb.containers {
			resp.ContainersStatuses = append(resp.ContainersStatuses, proto.CloneOf(c.status))
		}
		return resp, nil
	}
	resp := &cri.PodSandboxStatusResponse{}
	setBody(resp, sb.answer)
	return resp, nil
}

func (s *service) ContainerStatus(ctx context.Context, req *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	s.rt.mu.RLock()
	defer s.rt.mu.RUnlock()
	c, ok := s.rt.state.byID[req.GetContainerId()].(*container)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "container %s: not found", req.GetContainerId())
	}
	if faults := malformOf(ctx); len(faults) > 0 {
		return &cri.ContainerStatusResponse{Status: malformStatus(c.status, faults)}, nil
	}
	resp := &cri.ContainerStatusResponse{}
	setBody(resp, c.answer)
	return resp, nil
}

func (s *service) GetContainerEvents(
	req *cri.GetEventsRequest, stream grpc.ServerStreamingServer[cri.ContainerEventResponse],
) (err error) {
	ctx := stream.Context()
	c, err := s.rt.admit(ctx, rpcEvents, req)
	defer c.leave()
	if err != nil {
		return err
	}
	ctx, client := s.rt.hub.connect(ctx, c.faults)
	defer s.rt.hub.disconnect(client)
	sent := 0
	return client.run(ctx, func(ev *cri.ContainerEventResponse) error {
		if err := stream.Send(malformEvent(ev, c.faults)); err != nil {
			return err
		}
		sent++
		return c.happen(ctx, sent)
	})
}

// imageService knows no images. crictl asks for the file system before anything else.
type imageService struct {
	cri.UnimplementedImageServiceServer
}

func (imageService) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{FsId: &cri.FilesystemIdentifier{Mountpoint: "/simulated/images"}}}}, nil
}
