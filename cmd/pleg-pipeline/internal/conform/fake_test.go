package conform_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

// fake is a runtime that keeps every promise, except for what its hooks do.
type fake struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	// events, if not nil, returns what each client gets in place of an event.
	events func(client int, e *runtimeapi.ContainerEventResponse) []*runtimeapi.ContainerEventResponse
	// eventsEnd, if not nil, ends each event stream at once.
	eventsEnd func() error
	// firstExit, if not nil, changes the first EXITED status of a container.
	firstExit func(*runtimeapi.ContainerStatus)
	// list, if not nil, changes each answer of ListContainers.
	list func(*runtimeapi.ListContainersResponse)
	// unknown is the code for unknown ids; NotFound if zero.
	unknown codes.Code
	// maxList is the number of sandboxes that a list can have; 0 means any.
	maxList int
	// run, if not nil, is called before RunPodSandbox makes the sandbox.
	run func(context.Context)

	mu         sync.Mutex
	made       int
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*runtimeapi.ContainerStatus
	configs    map[string]*runtimeapi.CreateContainerRequest
	clients    []chan *runtimeapi.ContainerEventResponse
}

// serveFake serves a fake until the test ends.
func serveFake(t *testing.T, f *fake) (endpoint string) {
	t.Helper()
	f.sandboxes, f.containers = make(map[string]*runtimeapi.PodSandboxStatus), make(map[string]*runtimeapi.ContainerStatus)
	f.configs = make(map[string]*runtimeapi.CreateContainerRequest)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := unixsocket.Listen(t.Context(), socket)
	kit.Must(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, f)
	runtimeapi.RegisterImageServiceServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "unix://" + socket
}

func (f *fake) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1"}, nil
}

func (f *fake) ImageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	if req.GetImage().GetImage() != "image" {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "image"}}, nil
}

func (f *fake) id() string {
	f.made++
	return fmt.Sprintf("%064d", f.made)
}

func (f *fake) RunPodSandbox(ctx context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	if f.run != nil {
		f.run(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.id()
	f.sandboxes[id] = &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: req.GetConfig().GetMetadata(), Labels: req.GetConfig().GetLabels(),
		Annotations: req.GetConfig().GetAnnotations(), CreatedAt: time.Now().UnixNano(),
	}
	f.announce(created, id, id)
	f.announce(started, id, id)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (f *fake) StopPodSandbox(_ context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := req.GetPodSandboxId()
	if s := f.sandboxes[id]; s != nil && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
		s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		f.announce(stopped, id, id)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (f *fake) RemovePodSandbox(_ context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := req.GetPodSandboxId()
	maps.DeleteFunc(f.containers, func(c string, _ *runtimeapi.ContainerStatus) bool { return f.configs[c].GetPodSandboxId() == id })
	if f.sandboxes[id] != nil {
		e := f.event(deleted, id, id)
		delete(f.sandboxes, id)
		f.send(e)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (f *fake) CreateContainer(_ context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.id()
	f.configs[id] = req
	f.containers[id] = &runtimeapi.ContainerStatus{
		Id: id, Metadata: req.GetConfig().GetMetadata(), Labels: req.GetConfig().GetLabels(), CreatedAt: time.Now().UnixNano(),
	}
	f.announce(created, id, req.GetPodSandboxId())
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// StartContainer runs a container, which ends as its arguments say, within
// milliseconds.
func (f *fake) StartContainer(_ context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := req.GetContainerId()
	f.containers[id].State = runtimeapi.ContainerState_CONTAINER_RUNNING
	f.announce(started, id, f.configs[id].GetPodSandboxId())
	note, args := f.configs[id].GetConfig().GetArgs()[1], f.configs[id].GetConfig().GetArgs()[2:]
	switch args[0] {
	case "pause":
		return &runtimeapi.StartContainerResponse{}, nil
	case "exit":
		file := filepath.Join(f.configs[id].GetConfig().GetMounts()[0].GetHostPath(), note)
		if err := os.WriteFile(file, []byte(time.Now().Format(time.RFC3339Nano)), 0o600); err != nil {
			return nil, err
		}
		if args[1] == "7" {
			f.exit(id, 7, "Error")
		} else {
			f.exit(id, 0, "Completed")
		}
	case "oom":
		f.exit(id, 137, "OOMKilled")
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (f *fake) exit(id string, code int32, reason string) {
	st := f.containers[id]
	st.State, st.ExitCode, st.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, code, reason
	f.announce(stopped, id, f.configs[id].GetPodSandboxId())
}

func (f *fake) RemoveContainer(_ context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := req.GetContainerId()
	delete(f.containers, id)
	f.announce(deleted, id, f.configs[id].GetPodSandboxId())
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (f *fake) of(sandbox string) (statuses []*runtimeapi.ContainerStatus) {
	for _, id := range slices.Sorted(maps.Keys(f.containers)) {
		if f.configs[id].GetPodSandboxId() == sandbox {
			statuses = append(statuses, proto.CloneOf(f.containers[id]))
		}
	}
	return statuses
}

func (f *fake) event(kind runtimeapi.ContainerEventType, id, sandbox string) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus: proto.CloneOf(f.sandboxes[sandbox]), ContainersStatuses: f.of(sandbox),
	}
}

func (f *fake) announce(kind runtimeapi.ContainerEventType, id, sandbox string) {
	f.send(f.event(kind, id, sandbox))
}

func (f *fake) send(e *runtimeapi.ContainerEventResponse) {
	for i, c := range f.clients {
		events := []*runtimeapi.ContainerEventResponse{e}
		if f.events != nil {
			events = f.events(i, proto.CloneOf(e))
		}
		for _, e := range events {
			c <- e
		}
	}
}

func (f *fake) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	if f.eventsEnd != nil {
		return f.eventsEnd()
	}
	const all = 1 << 13 // more than a test causes
	c := make(chan *runtimeapi.ContainerEventResponse, all)
	f.mu.Lock()
	f.clients = append(f.clients, c)
	f.mu.Unlock()
	for {
		select {
		case e := <-c:
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}
