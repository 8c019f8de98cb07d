package cri_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
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

// An event with such text does not end the stream. It is a reason to list the pod.
func TestEventThatIsNotUTF8(t *testing.T) {
	fake := &rawruntime.Runtime{Events: make(chan *runtimeapi.ContainerEventResponse)}
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
			fake.Events <- e
			h := <-w.hints
			if h.UID != "u" || h.State != pleg.StateRunning || (h.Container == "") != (e == bad) {
				t.Errorf("got %+v of %v", h, e)
			}
		}
	}
	kit.RequireMetric(t, registry, 3, "pleg_malformed_items_total")
}
