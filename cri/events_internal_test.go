package cri

import (
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// generated is an event as the generated types decode it.
func generated(raw []byte) (*event, error) {
	message := &runtimeapi.ContainerEventResponse{}
	if err := proto.Unmarshal(raw, message); err != nil {
		return nil, err
	}
	e := &event{
		kind: message.GetContainerEventType(), createdAt: message.GetCreatedAt(), container: pleg.ContainerID(message.GetContainerId()),
	}
	if s := message.GetPodSandboxStatus(); s != nil {
		e.sandbox = newEventSandbox(s)
	}
	for _, c := range message.GetContainersStatuses() {
		e.containers = append(e.containers, newEventContainer(c, e.sandbox))
	}
	return e, nil
}

// checkEvent reads an event with the memory of others, and demands what the
// generated types make of it alone.
func checkEvent(t *testing.T, e *event, raw []byte) (ok bool) {
	t.Helper()
	got, want := testConverter(), testConverter()
	reference, wantErr := generated(raw)
	if err := e.read(raw); err != nil || wantErr != nil {
		if err != nil && wantErr == nil {
			t.Errorf("read: %v, which the generated types can", err)
		}
		return err == nil && wantErr == nil
	}
	if len(e.containers) != len(reference.containers) {
		t.Fatalf("%d containers, want %d", len(e.containers), len(reference.containers))
	}
	for i, c := range e.containers {
		if c.whole != reference.containers[i].whole || !reflect.DeepEqual(normal(c), normal(reference.containers[i])) {
			t.Errorf("container %d is %+v, want %+v", i, c.status, reference.containers[i].status)
		}
	}
	gotHint, wantHint := got.hint(e, eventNow), want.hint(reference, eventNow)
	for _, h := range []*pleg.Hint{&gotHint, &wantHint} {
		if h.Status != nil {
			for i, c := range h.Status.Containers {
				h.Status.Containers[i] = withoutEmpty(c)
			}
			for i, s := range h.Status.Sandboxes {
				same := *s
				same.Labels, same.Annotations = orNil(s.Labels), orNil(s.Annotations)
				h.Status.Sandboxes[i] = &same
			}
		}
	}
	if !reflect.DeepEqual(gotHint, wantHint) {
		t.Errorf("got %+v, want %+v", gotHint, wantHint)
	}
	if n := got.client.strangers.Load(); n != want.client.strangers.Load() {
		t.Errorf("%d strangers, want %d", n, want.client.strangers.Load())
	}
	return true
}

// FuzzEvents reads three events of one stream, so that what is known of the
// statuses in one may be used for the next.
func FuzzEvents(f *testing.F) {
	whole := aContainerStarts()
	for _, next := range nextEvents() {
		f.Add(encodeStatus(f, whole), encodeStatus(f, next))
	}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		e := newEvent()
		for _, raw := range [][]byte{before, after, before, after} {
			if !checkEvent(t, e, raw) {
				e = newEvent() // gRPC ends the stream
			}
		}
	})
}

// nextEvents are events that may follow that of a container that starts.
func nextEvents() map[string]*runtimeapi.ContainerEventResponse {
	next := make(map[string]*runtimeapi.ContainerEventResponse)
	for name, change := range map[string]func(*runtimeapi.ContainerEventResponse){
		"the same":           func(*runtimeapi.ContainerEventResponse) {},
		"the container ends": func(e *runtimeapi.ContainerEventResponse) { e.ContainersStatuses[1].State = 2 },
		"another exit code":  func(e *runtimeapi.ContainerEventResponse) { e.ContainersStatuses[0].ExitCode = 8 },
		"the other order": func(e *runtimeapi.ContainerEventResponse) {
			e.ContainersStatuses[0], e.ContainersStatuses[1] = e.ContainersStatuses[1], e.ContainersStatuses[0]
		},
		"a label changes": func(e *runtimeapi.ContainerEventResponse) { e.ContainersStatuses[1].Labels["a"] = "b" },
		"an annotation comes": func(e *runtimeapi.ContainerEventResponse) {
			e.ContainersStatuses[1].Annotations = map[string]string{"a": "b"}
		},
		"the address goes":     func(e *runtimeapi.ContainerEventResponse) { e.PodSandboxStatus.Network = nil },
		"the sandbox's labels": func(e *runtimeapi.ContainerEventResponse) { e.PodSandboxStatus.Labels["a"] = "b" },
		"another sandbox":      func(e *runtimeapi.ContainerEventResponse) { e.PodSandboxStatus.Id = "s2" },
		"no sandbox":           func(e *runtimeapi.ContainerEventResponse) { e.PodSandboxStatus = nil },
		"the image": func(e *runtimeapi.ContainerEventResponse) {
			e.ContainersStatuses[1].Image = &runtimeapi.ImageSpec{Image: "i"}
		},
		"the container is gone": func(e *runtimeapi.ContainerEventResponse) {
			e.ContainerEventType, e.ContainersStatuses = deletedEvent, e.ContainersStatuses[:1]
		},
		"the sandbox is gone": func(e *runtimeapi.ContainerEventResponse) {
			e.ContainerEventType, e.ContainerId, e.ContainersStatuses = deletedEvent, "s1", nil
		},
	} {
		e := aContainerStarts()
		change(e)
		next[name] = e
	}
	return next
}

func TestEventsOfOneStream(t *testing.T) {
	for name, next := range nextEvents() {
		t.Run(name, func(t *testing.T) {
			e := newEvent()
			for _, sent := range []*runtimeapi.ContainerEventResponse{aContainerStarts(), next, aContainerStarts(), next} {
				checkEvent(t, e, encodeStatus(t, sent))
			}
		})
	}
}

// What did not change is not decoded again: the pointers show it.
func TestUnchangedStatusesOfAnEventAreShared(t *testing.T) {
	e, v := newEvent(), testConverter()
	read := func(sent *runtimeapi.ContainerEventResponse) pleg.Hint {
		t.Helper()
		if err := e.read(encodeStatus(t, sent)); err != nil {
			t.Fatal(err)
		}
		return v.hint(e, eventNow)
	}
	first := read(aContainerStarts())
	ends := aContainerStarts()
	ends.ContainerEventType, ends.ContainersStatuses[1].State = stoppedEvent, runtimeapi.ContainerState_CONTAINER_EXITED
	second := read(ends)
	if first.Status.Sandboxes[0] != second.Status.Sandboxes[0] || first.Status.Container("c0") != second.Status.Container("c0") {
		t.Error("statuses that did not change were made anew")
	}
	c1 := second.Status.Container("c1")
	if c1.State != pleg.StateExited || first.Status.Container("c1").State != pleg.StateRunning {
		t.Errorf("c1 is %v, was %v", c1.State, first.Status.Container("c1").State)
	}
}

// TestMemoryOfEventsIsBounded sends events of ever new sandboxes, small ones and
// large ones.
func TestMemoryOfEventsIsBounded(t *testing.T) {
	for name, size := range map[string]int{"many": 1, "large": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			e := newEvent()
			sent := aContainerStarts()
			sent.ContainersStatuses[0].Message = string(make([]byte, size))
			rounds := 3 * maxKnownSandboxes
			if size > 1 {
				rounds = 40
			}
			for i := range rounds {
				sent.PodSandboxStatus.Id = fmt.Sprint("s", i)
				if err := e.read(encodeStatus(t, sent)); err != nil {
					t.Fatal(err)
				}
				if len(e.known) > maxKnownSandboxes || e.bytes > maxKnownBytes {
					t.Fatalf("%d sandboxes of %d bytes are known", len(e.known), e.bytes)
				}
			}
			for id := range e.known {
				sent.ContainerId, sent.ContainerEventType = string(id), deletedEvent
				sent.PodSandboxStatus.Id, sent.ContainersStatuses = string(id), nil
				if err := e.read(encodeStatus(t, sent)); err != nil {
					t.Fatal(err)
				}
			}
			if len(e.known) != 0 || e.bytes != 0 {
				t.Errorf("%d sandboxes of %d bytes are known when all are gone", len(e.known), e.bytes)
			}
		})
	}
}

// normal is a container with empty maps as nil ones: which of the two a label map
// is says nothing.
func normal(c *eventContainer) eventContainer {
	return eventContainer{c.listed, withoutEmpty(c.status), c.whole}
}

func withoutEmpty(c *pleg.ContainerStatus) *pleg.ContainerStatus {
	same := *c
	same.Labels, same.Annotations = orNil(c.Labels), orNil(c.Annotations)
	return &same
}

func orNil(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}
