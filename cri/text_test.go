package cri_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The encoded fields that each of these messages gets in addition: the id, and the name in
// the metadata. Go's encoder refuses text that is not UTF-8.
var (
	badID   = []byte{0x0a, 0x02, 'c', 0xff}
	badName = []byte{0x0a, 0x02, 'n', 0xff}
)

// withField adds an encoded field to a message.
func withField[M proto.Message](m M, field []byte) M {
	m.ProtoReflect().SetUnknown(field)
	return m
}

func badSandbox(s *runtimeapi.PodSandbox) *runtimeapi.PodSandbox {
	withField(s.Metadata, badName)
	return s
}

func badContainer(c *runtimeapi.Container) *runtimeapi.Container {
	withField(c.Metadata, badName)
	return c
}

// streaming serves the lists as streams too, one item in each message.
type streaming struct{ *fakeRuntime }

func (s streaming) StreamPodSandboxes(_ *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	for _, item := range s.sandboxes {
		if err := stream.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: []*runtimeapi.PodSandbox{item}}); err != nil {
			return err
		}
	}
	return nil
}

func (s streaming) StreamContainers(_ *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	for _, item := range s.containers {
		if err := stream.Send(&runtimeapi.StreamContainersResponse{Containers: []*runtimeapi.Container{item}}); err != nil {
			return err
		}
	}
	return nil
}

// TestTextThatIsNotUTF8 requires that an item with such text hides no other item, whether
// the lists are streamed or not.
func TestTextThatIsNotUTF8(t *testing.T) {
	unlabelled := container("bad", "good", 1, 1)
	unlabelled.Labels = map[string]string{"io.kubernetes.container.name": "main"}
	for _, tt := range []struct {
		name      string
		sandbox   *runtimeapi.PodSandbox
		container *runtimeapi.Container
	}{
		{"name of a sandbox", badSandbox(sandbox("bad", "u9", 0, 1)), nil},
		{"id of a sandbox", withField(sandbox("c\ufffd", "u9", 0, 1), badID), nil},
		{"label of a sandbox", withField(sandbox("bad", "u9", 0, 1), []byte{0x2a, 0x03, 0x0a, 0x01, 0xff}), nil},
		{"name of a container", nil, badContainer(container("bad", "good", 1, 1))},
		{"id of a container", nil, withField(container("c\ufffd", "good", 1, 1), badID)},
		{"annotation of a container", nil, withField(container("bad", "good", 1, 1), []byte{0x4a, 0x03, 0x12, 0x01, 0xff})},
		{"image of a container", nil, withField(container("bad", "good", 1, 1), []byte{0x22, 0x03, 0x0a, 0x01, 0xff})},
		{"container with the kubelet's labels", nil, badContainer(unlabelled)},
	} {
		for _, unary := range []bool{true, false} {
			t.Run(tt.name, func(t *testing.T) {
				fake := &fakeRuntime{sandboxes: []*runtimeapi.PodSandbox{sandbox("good", "good", 0, 1)}}
				fake.containers = []*runtimeapi.Container{container("c1", "good", 1, 1)}
				registry := prometheus.NewPedanticRegistry()
				client := connect(t, streaming{fake}, cri.Options{UnaryLists: unary, Registerer: registry})
				want := show(listPods(t, client))
				if tt.sandbox != nil {
					fake.sandboxes = append([]*runtimeapi.PodSandbox{tt.sandbox}, fake.sandboxes...)
				} else {
					fake.containers = append([]*runtimeapi.Container{tt.container}, fake.containers...)
				}
				for n := range 2 {
					if got := show(listPods(t, client)); got != want {
						t.Errorf("got %s, want %s", got, want)
					}
					if counted := kit.Metric(t, registry, "pleg_malformed_items_total"); counted != float64(n+1) {
						t.Errorf("%v items are counted after %d lists", counted, n+1)
					}
				}
			})
		}
	}
}

// A known item whose text becomes malformed is not gone, and its state is still that of
// the list.
func TestKnownItemKeepsItsText(t *testing.T) {
	fake := &fakeRuntime{sandboxes: []*runtimeapi.PodSandbox{sandbox("s", "u", 0, 1)}}
	fake.containers = []*runtimeapi.Container{container("c", "s", 1, 1)}
	client := connect(t, fake, cri.Options{})
	before := show(listPods(t, client))
	fake.sandboxes = []*runtimeapi.PodSandbox{badSandbox(sandbox("s", "u", 0, 1))}
	fake.containers = []*runtimeapi.Container{badContainer(container("c", "s", 2, 1))}
	want := strings.Replace(before, "name-c#1 running", "name-c#1 exited", 1)
	for range 2 {
		if got := show(listPods(t, client)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	fake.sandboxes, fake.containers = []*runtimeapi.PodSandbox{sandbox("s", "u", 0, 1)}, []*runtimeapi.Container{container("c", "s", 1, 1)}
	if got := show(listPods(t, client)); got != before {
		t.Errorf("got %s, want %s as before", got, before)
	}
}

// A status with such text is an error of its pod.
func TestStatusThatIsNotUTF8(t *testing.T) {
	fake := &fakeRuntime{
		sandboxStatus: func(_ context.Context, id string) (*runtimeapi.PodSandboxStatusResponse, error) {
			return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: id}}, nil
		},
		containerStatus: func(_ context.Context, id string) (*runtimeapi.ContainerStatusResponse, error) {
			st := &runtimeapi.ContainerStatus{Id: id, State: runtimeapi.ContainerState_CONTAINER_RUNNING}
			if id == "bad" {
				st.Metadata = withField(&runtimeapi.ContainerMetadata{}, badName)
			}
			return &runtimeapi.ContainerStatusResponse{Status: st}, nil
		},
	}
	client := connect(t, fake, cri.Options{})
	for id, want := range map[pleg.ContainerID]string{"good": "", "bad": "container_status bad: "} {
		pod := &pleg.Pod{UID: "u", Containers: []*pleg.Container{{ID: id, State: pleg.StateRunning}}}
		_, err := client.PodStatus(t.Context(), pod, nil)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", id, err, want)
		}
	}
}

// An event with such text does not end the stream. It is a reason to list the pod.
func TestEventThatIsNotUTF8(t *testing.T) {
	send := make(chan *runtimeapi.ContainerEventResponse)
	fake := &fakeRuntime{events: func(stream eventStream) error {
		for {
			select {
			case event := <-send:
				if err := stream.Send(event); err != nil {
					return err
				}
			case <-stream.Context().Done():
				return nil
			}
		}
	}}
	registry := prometheus.NewPedanticRegistry()
	w := watchEvents(t, connect(t, fake, cri.Options{Registerer: registry}))
	event := func() *runtimeapi.ContainerEventResponse {
		return &runtimeapi.ContainerEventResponse{
			ContainerId: "c", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: 5,
			PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: "u"}},
			ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "n"}, State: 1}},
		}
	}
	sandbox, container, head := event(), event(), event()
	withField(sandbox.PodSandboxStatus.Metadata, badName)
	withField(container.ContainersStatuses[0].Metadata, badName)
	withField(head, badID)
	for _, bad := range []*runtimeapi.ContainerEventResponse{sandbox, container, head} {
		for _, e := range []*runtimeapi.ContainerEventResponse{bad, event()} {
			send <- e
			h := <-w.hints
			if h.UID != "u" || h.State != pleg.StateRunning || (h.Pod == nil) != (e == bad) {
				t.Errorf("got %+v of %v", h, e)
			}
		}
	}
	if counted := kit.Metric(t, registry, "pleg_malformed_items_total"); counted != 3 {
		t.Errorf("%v events are counted, want 3", counted)
	}
}
