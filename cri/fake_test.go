package cri_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// fakeRuntime returns the answers in its fields, including malformed ones that
// simruntime does not send.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	list            func() (*runtimeapi.ListPodSandboxResponse, *runtimeapi.ListContainersResponse, error)
	sandboxStatus   func(ctx context.Context, id string) (*runtimeapi.PodSandboxStatusResponse, error)
	containerStatus func(ctx context.Context, id string) (*runtimeapi.ContainerStatusResponse, error)
	listContainers  func(ctx context.Context) (*runtimeapi.ListContainersResponse, error)
}

func (f *fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "v7", RuntimeApiVersion: "v1",
	}, nil
}

func (f *fakeRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	sandboxes, _, err := f.list()
	return sandboxes, err
}

func (f *fakeRuntime) ListContainers(ctx context.Context, _ *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	if f.listContainers != nil {
		return f.listContainers(ctx)
	}
	_, containers, err := f.list()
	return containers, err
}

func (f *fakeRuntime) PodSandboxStatus(ctx context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return f.sandboxStatus(ctx, req.GetPodSandboxId())
}

func (f *fakeRuntime) ContainerStatus(ctx context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return f.containerStatus(ctx, req.GetContainerId())
}

// lists makes the fake list these items.
func lists(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) *fakeRuntime {
	return &fakeRuntime{list: func() (*runtimeapi.ListPodSandboxResponse, *runtimeapi.ListContainersResponse, error) {
		return &runtimeapi.ListPodSandboxResponse{Items: sandboxes}, &runtimeapi.ListContainersResponse{Containers: containers}, nil
	}}
}

// connect serves fake in memory, which works in a synctest bubble, and returns
// a client of it. Both end with the test.
func connect(t testing.TB, fake runtimeapi.RuntimeServiceServer, opts cri.Options) *cri.Client {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	serve(t, fake, listener)
	opts.DialOptions = append(opts.DialOptions, grpc.WithContextDialer(
		func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	return newClient(t, "/in-memory", opts)
}

// serve serves fake on listener until the test ends or stop is called.
func serve(t testing.TB, fake runtimeapi.RuntimeServiceServer, listener net.Listener) (stop func()) {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(64<<20))
	runtimeapi.RegisterRuntimeServiceServer(server, fake)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with Stop
	}()
	stop = sync.OnceFunc(func() {
		server.Stop()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

func newClient(t testing.TB, endpoint string, opts cri.Options) *cri.Client {
	t.Helper()
	client, err := cri.New(endpoint, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return client
}
