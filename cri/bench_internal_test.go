package cri

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// BenchmarkListPods decodes and joins the lists of an idle node. decoder=generated uses
// the generated code, and joins without the list before.
func BenchmarkListPods(b *testing.B) {
	const pods = 1000
	answers := idleAnswers(b, pods)
	l := testLists(b)
	if _, _, err := l.readPieces(b, answers[0][0], answers[0][1]); err != nil {
		b.Fatal(err)
	}
	for name, read := range map[string]func(sandboxes, containers mem.BufferSlice) ([]*pleg.Pod, int, error){
		"table": func(sandboxes, containers mem.BufferSlice) ([]*pleg.Pod, int, error) {
			return l.readPieces(b, sandboxes, containers)
		},
		"generated": func(sandboxes, containers mem.BufferSlice) ([]*pleg.Pod, int, error) {
			return reference(sandboxes.Materialize(), containers.Materialize())
		},
	} {
		b.Run(fmt.Sprintf("pods=%d/decoder=%s", pods, name), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if got, _, err := read(answers[n%4][0], answers[n%4][1]); err != nil || len(got) != pods {
					b.Fatalf("%d pods, %v", len(got), err)
				}
			}
		})
	}
}

// BenchmarkEventDecode decodes the events of a container that ends and starts again, and
// converts them to hints.
func BenchmarkEventDecode(b *testing.B) {
	event := aContainerStarts()
	for i, c := range event.GetContainersStatuses() {
		listed := nodeContainer(0, i)
		c.Annotations, c.Image, c.ImageRef = listed.GetAnnotations(), listed.GetImage(), listed.GetImageRef()
	}
	starts := encode(b, event)
	event.ContainerEventType, event.ContainersStatuses[1].State = stoppedEvent, runtimeapi.ContainerState_CONTAINER_EXITED
	raws := [][]byte{starts, encode(b, event)}
	for name, decode := range map[string]func([]byte, *runtimeapi.ContainerEventResponse) error{
		"codec":     newEventCodec(func() {}).decode,
		"generated": func(raw []byte, event *runtimeapi.ContainerEventResponse) error { return proto.Unmarshal(raw, event) },
	} {
		b.Run("decoder="+name, func(b *testing.B) {
			b.ReportAllocs()
			v := testConverter()
			for n := 0; b.Loop(); n++ {
				event := &runtimeapi.ContainerEventResponse{}
				if err := decode(raws[n%2], event); err != nil {
					b.Fatal(err)
				}
				if h := v.hint(event, time.Now()); h.Pod == nil {
					b.Fatalf("event %d is not complete: %+v", n, h)
				}
			}
		})
	}
}
