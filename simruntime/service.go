package simruntime

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Name and Version are in the answer of the Version RPC.
const (
	Name    = "simruntime"
	Version = "0.1.0"
)

// service is the CRI of a Runtime. What it does not define answers
// Unimplemented.
type service struct {
	cri.UnimplementedRuntimeServiceServer
	rt *Runtime
}

func (s *service) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{
		Version: "0.1.0", RuntimeName: Name, RuntimeVersion: Version, RuntimeApiVersion: "v1",
	}, nil
}

func (s *service) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: true},
		{Type: cri.NetworkReady, Status: true},
	}}}, nil
}

func (s *service) RunPodSandbox(_ context.Context, req *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	meta := req.GetConfig().GetMetadata()
	if meta.GetName() == "" || meta.GetNamespace() == "" || meta.GetUid() == "" {
		return nil, status.Error(codes.InvalidArgument, "sandbox config needs metadata with name, namespace and uid")
	}
	resp := &cri.RunPodSandboxResponse{}
	return resp, s.rt.update(func(tx *Txn) (err error) {
		resp.PodSandboxId, err = tx.runSandbox(req.GetConfig(), req.GetRuntimeHandler())
		return err
	})
}

// StopPodSandbox is idempotent, like the removals, as the CRI demands.
func (s *service) StopPodSandbox(_ context.Context, req *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	return &cri.StopPodSandboxResponse{}, s.rt.update(func(tx *Txn) error {
		if sb, err := tx.sandbox(req.GetPodSandboxId()); err == nil {
			tx.stop(sb)
		}
		return nil
	})
}

func (s *service) RemovePodSandbox(_ context.Context, req *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	return &cri.RemovePodSandboxResponse{}, s.rt.update(func(tx *Txn) error {
		if sb, err := tx.sandbox(req.GetPodSandboxId()); err == nil {
			tx.removeSandbox(sb)
		}
		return nil
	})
}

func (s *service) CreateContainer(_ context.Context, req *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	if req.GetConfig().GetMetadata().GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "container config needs metadata with a name")
	}
	resp := &cri.CreateContainerResponse{}
	return resp, s.rt.update(func(tx *Txn) (err error) {
		resp.ContainerId, err = tx.createContainer(req.GetPodSandboxId(), req.GetConfig())
		return err
	})
}

func (s *service) StartContainer(_ context.Context, req *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	return &cri.StartContainerResponse{}, s.rt.update(func(tx *Txn) error {
		return tx.StartContainer(req.GetContainerId())
	})
}

// StopContainer ends a container with code 0 if the request has a timeout, and as
// SIGKILL does if not.
func (s *service) StopContainer(_ context.Context, req *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	return &cri.StopContainerResponse{}, s.rt.update(func(tx *Txn) error {
		c, err := tx.container(req.GetContainerId())
		switch {
		case err != nil || c.state == cri.ContainerState_CONTAINER_EXITED:
			return nil
		case req.GetTimeout() > 0 && c.state == cri.ContainerState_CONTAINER_RUNNING:
			tx.exit(c, 0, "")
		default:
			tx.kill(c)
		}
		return nil
	})
}

func (s *service) RemoveContainer(_ context.Context, req *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	return &cri.RemoveContainerResponse{}, s.rt.update(func(tx *Txn) error {
		if c, err := tx.container(req.GetContainerId()); err == nil {
			tx.remove(c)
		}
		return nil
	})
}

func (s *service) PodSandboxStatus(ctx context.Context, req *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	s.rt.read()
	defer s.rt.mu.RUnlock()
	sb := s.rt.state.sandboxes[req.GetPodSandboxId()]
	if sb == nil {
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
	s.rt.read()
	defer s.rt.mu.RUnlock()
	c := s.rt.state.containers[req.GetContainerId()]
	if c == nil {
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
	c, err := s.rt.begin(ctx, rpcEvents, req)
	defer func() { c.end(err) }()
	if err != nil {
		return err
	}
	if err := c.finish(ctx); err != nil {
		return err
	}
	client, faults := s.rt.hub.connect()
	client.late = c.verdict.latency
	defer s.rt.hub.disconnect(client)
	switch faults.Mode {
	case EventsEOF:
		return nil
	case EventsUnimplemented:
		return status.Error(codes.Unimplemented, "method GetContainerEvents not implemented")
	}
	sent := 0
	return client.run(ctx, faults.BreakAfter, func(ev *cri.ContainerEventResponse) error {
		if err := stream.Send(malformEvent(ev, c.verdict.malform)); err != nil {
			return err
		}
		if sent++; sent == c.verdict.messages {
			return c.verdict.serve(ctx)
		}
		return nil
	})
}

// runSandbox adds a sandbox as a client describes it.
func (tx *Txn) runSandbox(cfg *cri.PodSandboxConfig, handler string) (string, error) {
	meta := cfg.GetMetadata()
	if p := tx.s.pods[meta.GetUid()]; p != nil {
		for _, sb := range p.sandboxes {
			if sb.gone == 0 && sb.meta.GetAttempt() == meta.GetAttempt() {
				return "", fmt.Errorf("attempt %d of sandbox %s is %s: %w", meta.GetAttempt(), meta.GetName(), sb.id, ErrExists)
			}
		}
	}
	return tx.newSandbox(cfg, nil, handler).id, nil
}

// createContainer adds a container as a client describes it.
func (tx *Txn) createContainer(sandboxID string, cfg *cri.ContainerConfig) (string, error) {
	sb, err := tx.sandbox(sandboxID)
	if err != nil {
		return "", err
	}
	if !sb.ready {
		return "", fmt.Errorf("sandbox %s is not ready: %w", sandboxID, ErrState)
	}
	meta := cfg.GetMetadata()
	for _, c := range sb.containers {
		if c.meta.GetName() == meta.GetName() && c.meta.GetAttempt() == meta.GetAttempt() {
			return "", fmt.Errorf("attempt %d of container %s is %s: %w", meta.GetAttempt(), meta.GetName(), c.id, ErrExists)
		}
	}
	return tx.newContainer(sb, cfg).id, nil
}

// imageService has every image.
type imageService struct {
	cri.UnimplementedImageServiceServer
	rt *Runtime
}

// imageBytes is the size of every image.
const imageBytes = 42 << 20

func image(name string) *cri.Image {
	return &cri.Image{Id: imageRef(name), RepoTags: []string{name}, Size: imageBytes}
}

// ListImages answers the images that containers use.
func (s *imageService) ListImages(_ context.Context, req *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	s.rt.read()
	defer s.rt.mu.RUnlock()
	want := req.GetFilter().GetImage().GetImage()
	seen := map[string]bool{}
	resp := &cri.ListImagesResponse{}
	for _, c := range s.rt.state.containerOrder {
		name := c.image.GetImage()
		if !seen[name] && (want == "" || want == name) {
			seen[name] = true
			resp.Images = append(resp.Images, image(name))
		}
	}
	return resp, nil
}

func (s *imageService) ImageStatus(_ context.Context, req *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	return &cri.ImageStatusResponse{Image: image(req.GetImage().GetImage())}, nil
}

func (s *imageService) PullImage(_ context.Context, req *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	return &cri.PullImageResponse{ImageRef: imageRef(req.GetImage().GetImage())}, nil
}
