// Package rawruntime is a CRI runtime with the answers of a test, also malformed ones that
// simruntime never sends.
package rawruntime

import (
	"cmp"
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Runtime returns the answers in its fields.
type Runtime struct {
	// Before is called before each unary call, if it is not nil. Its error replaces the answer.
	Before func(ctx context.Context, request any) error
	// After changes an answer to a unary call, if it is not nil.
	After func(answer any) any

	Name       string // "fake" if empty
	Conditions []*runtimeapi.RuntimeCondition
	Sandboxes  []*runtimeapi.PodSandbox
	Containers []*runtimeapi.Container
	Images     []*runtimeapi.FilesystemUsage // the filesystems with the images
	// Whole and One count the lists of all sandboxes and those with a filter. A list that was given
	// up may still run.
	Whole, One atomic.Int32

	// The statuses by id. An id that is not there is NotFound.
	SandboxStatuses   map[string]*runtimeapi.PodSandboxStatusResponse
	ContainerStatuses map[string]*runtimeapi.ContainerStatusResponse

	// Events are sent. Once the channel is closed, a stream ends with End.
	Events chan *runtimeapi.ContainerEventResponse
	End    error
}

// Serve serves a runtime on a listener until the test ends or stop is called; without a runtime, a
// server without CRI.
func Serve(t testing.TB, r *Runtime, listener net.Listener, o ...grpc.ServerOption) (stop func()) {
	server := grpc.NewServer(append(o, grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(64<<20), grpc.UnaryInterceptor(r.intercept))...)
	if r != nil {
		runtimeapi.RegisterRuntimeServiceServer(server, service{Runtime: r})
		runtimeapi.RegisterImageServiceServer(server, service{Runtime: r})
	}
	end := kit.Run(t, func(ctx context.Context) error { return kit.GRPC(server)(ctx, listener) })
	return func() { _ = end() } // Run reports the error
}

// service implements the calls of CRI.
type service struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	*Runtime
}

func (r *Runtime) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if r.Before != nil {
		if err := r.Before(ctx, request); err != nil {
			return nil, err
		}
	}
	answer, err := handle(ctx, request)
	if r.After != nil && err == nil {
		answer = r.After(answer)
	}
	return answer, err
}

func (r service) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: cmp.Or(r.Name, "fake"), RuntimeVersion: "v7",
	}, nil
}

func (r service) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: r.Conditions}}, nil
}

func (r service) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	filter := req.GetFilter()
	if filter == nil {
		r.Whole.Add(1)
	} else {
		r.One.Add(1)
	}
	return &runtimeapi.ListPodSandboxResponse{Items: matching(r.Sandboxes, filter, simruntime.SandboxMatches)}, nil
}

func (r service) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: matching(r.Containers, req.GetFilter(), simruntime.ContainerMatches)}, nil
}

func matching[E, F any](items []E, filter F, matches func(F, E) bool) []E {
	return slices.DeleteFunc(slices.Clone(items), func(e E) bool { return !matches(filter, e) })
}

func (r service) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return found(r.SandboxStatuses, req.GetPodSandboxId())
}

func (r service) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return found(r.ContainerStatuses, req.GetContainerId())
}

func found[A any](answers map[string]*A, id string) (*A, error) {
	if answer, ok := answers[id]; ok {
		return answer, nil
	}
	return nil, status.Errorf(codes.NotFound, "no %s", id)
}

func (r service) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: r.Images}, nil
}

func (r service) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	for {
		select {
		case event, ok := <-r.Events:
			if !ok {
				return r.End
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}
