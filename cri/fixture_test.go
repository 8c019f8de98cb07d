package cri_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// fakeRuntime returns the answers in its fields, including malformed answers that simruntime does
// not send.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	before func(ctx context.Context, request any) error // if not nil, its error comes in place of an answer to a unary call

	name       string // of the runtime
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	whole, one atomic.Int32 // the lists of all sandboxes, and of those with a label; a list that was given up may still run

	// The statuses by id. An object that is not there is NotFound.
	sandboxStatuses   map[string]*runtimeapi.PodSandboxStatusResponse
	containerStatuses map[string]*runtimeapi.ContainerStatusResponse

	events chan *runtimeapi.ContainerEventResponse // are sent; once it is closed, a stream ends with end
	end    error
}

func (f *fakeRuntime) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if f.before != nil {
		if err := f.before(ctx, request); err != nil {
			return nil, err
		}
	}
	return handle(ctx, request)
}

func (f *fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: cmp.Or(f.name, "fake"), RuntimeVersion: "v7", RuntimeApiVersion: "v1",
	}, nil
}

func (f *fakeRuntime) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	filter := req.GetFilter()
	if filter == nil {
		f.whole.Add(1)
	} else {
		f.one.Add(1)
	}
	items := slices.DeleteFunc(matching(f.sandboxes, filter.GetLabelSelector()), func(s *runtimeapi.PodSandbox) bool {
		return filter.GetId() != "" && s.GetId() != filter.GetId() || filter.GetState() != nil && s.GetState() != filter.GetState().GetState()
	})
	return &runtimeapi.ListPodSandboxResponse{Items: items}, nil
}

func (f *fakeRuntime) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: matching(f.containers, req.GetFilter().GetLabelSelector())}, nil
}

func matching[E interface{ GetLabels() map[string]string }](items []E, labels map[string]string) []E {
	return slices.DeleteFunc(slices.Clone(items), func(e E) bool {
		for k, v := range labels {
			if e.GetLabels()[k] != v {
				return true
			}
		}
		return false
	})
}

func (f *fakeRuntime) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return found(f.sandboxStatuses, req.GetPodSandboxId())
}

func (f *fakeRuntime) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return found(f.containerStatuses, req.GetContainerId())
}

func found[A any](answers map[string]*A, id string) (*A, error) {
	if answer, ok := answers[id]; ok {
		return answer, nil
	}
	return nil, status.Errorf(codes.NotFound, "no %s", id)
}

func (f *fakeRuntime) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	for {
		select {
		case event, ok := <-f.events:
			if !ok {
				return f.end
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// outlet serves runtimes in memory, one after the other, which works in a synctest
// bubble. The zero value serves none.
type outlet struct {
	current atomic.Pointer[bufconn.Listener]
}

func (o *outlet) listen() net.Listener {
	listener := bufconn.Listen(1 << 20)
	o.current.Store(listener)
	return listener
}

// client returns a client of what is served, until the test ends.
func (o *outlet) client(t testing.TB, opts cri.Options) *cri.Client {
	t.Helper()
	opts.DialOptions = append(opts.DialOptions, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return o.current.Load().DialContext(ctx)
	}))
	return newClient(t, "/in-memory", opts)
}

// connect serves fake and returns a client of it. Both end with the test.
func connect(t testing.TB, fake *fakeRuntime, opts cri.Options) *cri.Client {
	t.Helper()
	o := &outlet{}
	serve(t, fake, o.listen())
	return o.client(t, opts)
}

// serve serves fake on listener until the test ends or stop is called; if fake is nil, a
// service without CRI.
func serve(t testing.TB, fake *fakeRuntime, listener net.Listener) (stop func()) {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(64<<20), grpc.UnaryInterceptor(fake.intercept))
	if fake != nil {
		runtimeapi.RegisterRuntimeServiceServer(server, fake)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	stop = sync.OnceFunc(func() {
		server.Stop()
		serving.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// newClient returns a client of the runtime at endpoint until the test ends.
func newClient(t testing.TB, endpoint string, opts cri.Options) *cri.Client {
	t.Helper()
	client, err := cri.New(endpoint, opts)
	must(t, err)
	t.Cleanup(func() { must(t, client.Close()) })
	return client
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func listPods(t *testing.T, client *cri.Client) []*pleg.Pod {
	t.Helper()
	pods, err := client.ListPods(t.Context())
	must(t, err)
	return pods
}

// wantPods lists the pods and requires this number.
func wantPods(t *testing.T, client *cri.Client, want int) {
	t.Helper()
	if pods, err := client.ListPods(t.Context()); err != nil || len(pods) != want {
		t.Errorf("got %d pods, %v; want %d", len(pods), err, want)
	}
}

// wantList lists the pods and requires this text of them.
func wantList(t *testing.T, client *cri.Client, want string) {
	t.Helper()
	if got := show(listPods(t, client)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func sandbox(id, uid string, state runtimeapi.PodSandboxState, created int64) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{
		Id: id, State: state, CreatedAt: created,
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "name-" + id, Namespace: "ns-" + id, Uid: uid, Attempt: uint32(created)},
		Labels:   map[string]string{"of": id, "app": "web"},
	}
}

func container(id, sandboxID string, state runtimeapi.ContainerState, created int64) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: id, PodSandboxId: sandboxID, State: state, CreatedAt: created,
		Metadata: &runtimeapi.ContainerMetadata{Name: "name-" + id, Attempt: uint32(created)},
	}
}

// ofPod names the pod of a sandbox.
func ofPod(s *runtimeapi.PodSandbox, namespace, name string) *runtimeapi.PodSandbox {
	s.Metadata.Namespace, s.Metadata.Name = namespace, name
	return s
}

func labelled(c *runtimeapi.Container, uid string) *runtimeapi.Container {
	c.Labels = map[string]string{
		"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": "labelled", "io.kubernetes.pod.namespace": "space",
	}
	return c
}

// show prints pods, for readable differences.
func show(pods []*pleg.Pod) string {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b *pleg.Pod) int { return cmp.Compare(a.UID, b.UID) })
	var s strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&s, "%s %s/%s %v", p.UID, p.Namespace, p.Name, p.Labels)
		for _, c := range p.Sandboxes {
			fmt.Fprintf(&s, " [%s]", showContainer(c))
		}
		for _, c := range p.Containers {
			fmt.Fprintf(&s, " %s", showContainer(c))
		}
		s.WriteByte('\n')
	}
	return s.String()
}

func showContainer(c *pleg.Container) string {
	created := int64(0)
	if !c.CreatedAt.IsZero() {
		created = c.CreatedAt.UnixNano()
	}
	return fmt.Sprintf("%s<%s %s#%d %s@%d", c.ID, c.SandboxID, c.Name, c.Attempt, c.State, created)
}
