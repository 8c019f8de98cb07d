package cri

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// checkDecode requires the same result from a codec that has decoded other events as
// from the generated code. It reports whether raw is an event.
func checkDecode(t *testing.T, codec *eventCodec, raw []byte) bool {
	t.Helper()
	got, want := &runtimeapi.ContainerEventResponse{}, &runtimeapi.ContainerEventResponse{}
	err, wantErr := codec.decode(raw, got), proto.Unmarshal(raw, want)
	if (err != nil) != (wantErr != nil) {
		t.Errorf("error %v, want %v", err, wantErr)
	}
	if err == nil && !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	return err == nil
}

// FuzzEvents decodes events of one stream, so that the codec may reuse the statuses of
// one for the next.
func FuzzEvents(f *testing.F) {
	first := aContainerStarts()
	for _, next := range nextEvents() {
		f.Add(encode(f, first), encode(f, next))
	}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		codec := newEventCodec(func() {})
		for _, raw := range [][]byte{before, after, before, after} {
			if !checkDecode(t, codec, raw) {
				codec = newEventCodec(func() {}) // gRPC ends the stream
			}
		}
	})
}

// nextEvents returns events that may follow aContainerStarts.
func nextEvents() map[string]*runtimeapi.ContainerEventResponse {
	type event = runtimeapi.ContainerEventResponse
	next := make(map[string]*event)
	for name, change := range map[string]func(*event){
		"the same":              func(*event) {},
		"the container ends":    func(e *event) { e.ContainersStatuses[1].State = 2 },
		"another exit code":     func(e *event) { e.ContainersStatuses[0].ExitCode = 8 },
		"a label changes":       func(e *event) { e.ContainersStatuses[1].Labels["a"] = "b" },
		"an annotation appears": func(e *event) { e.ContainersStatuses[1].Annotations = map[string]string{"a": "b"} },
		"the address goes":      func(e *event) { e.PodSandboxStatus.Network = nil },
		"the sandbox's labels":  func(e *event) { e.PodSandboxStatus.Labels["a"] = "b" },
		"another sandbox":       func(e *event) { e.PodSandboxStatus.Id = "s2" },
		"no sandbox":            func(e *event) { e.PodSandboxStatus = nil },
		"the image":             func(e *event) { e.ContainersStatuses[1].Image = &runtimeapi.ImageSpec{Image: "i"} },
		"the other order": func(e *event) {
			e.ContainersStatuses[0], e.ContainersStatuses[1] = e.ContainersStatuses[1], e.ContainersStatuses[0]
		},
		"the container is gone": func(e *event) {
			e.ContainerEventType, e.ContainersStatuses = deletedEvent, e.ContainersStatuses[:1]
		},
		"the sandbox is gone": func(e *event) {
			e.ContainerEventType, e.ContainerId, e.ContainersStatuses = deletedEvent, "s1", nil
		},
	} {
		next[name] = aContainerStarts()
		change(next[name])
	}
	return next
}

func TestEventsOfOneStreamDecodeAsAlone(t *testing.T) {
	first := encode(t, aContainerStarts())
	for name, event := range nextEvents() {
		t.Run(name, func(t *testing.T) {
			codec, next := newEventCodec(func() {}), encode(t, event)
			inParts := append(encode(t, event), encode(t, &runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{RuntimeHandler: "runc"}})...)
			repeated := append(encode(t, event), encode(t, &runtimeapi.ContainerEventResponse{ContainerEventType: stoppedEvent})...)
			for _, raw := range [][]byte{first, next, first, next, inParts, repeated, next} {
				checkDecode(t, codec, raw)
			}
		})
	}
}

// The checksum of labels does not depend on their order, but the order of a repeated
// key counts.
func TestLastValueOfRepeatedLabelCounts(t *testing.T) {
	codec := newEventCodec(func() {})
	for _, order := range [][]string{{"1", "2"}, {"2", "1"}, {"1", "2"}} {
		raw := encode(t, &runtimeapi.ContainerStatus{Id: "c"})
		for _, value := range order {
			raw = append(raw, encode(t, &runtimeapi.ContainerStatus{Labels: map[string]string{"a": value}})...)
		}
		got, err := codec.containers.decode(raw)
		if err != nil || got.GetLabels()["a"] != order[1] {
			t.Errorf("%v: got %v, %v; want the last value", order, got, err)
		}
	}
}

func TestUnchangedStatusesAreShared(t *testing.T) {
	codec := newEventCodec(func() {})
	decode := func(event *runtimeapi.ContainerEventResponse) *runtimeapi.ContainerEventResponse {
		t.Helper()
		got := &runtimeapi.ContainerEventResponse{}
		if err := codec.decode(encode(t, event), got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	first, ends := decode(aContainerStarts()), aContainerStarts()
	ends.ContainerEventType, ends.ContainersStatuses[1].State = stoppedEvent, runtimeapi.ContainerState_CONTAINER_EXITED
	second := decode(ends)
	if first.PodSandboxStatus != second.PodSandboxStatus || first.ContainersStatuses[0] != second.ContainersStatuses[0] {
		t.Error("statuses that did not change were decoded again")
	}
	before, after := first.ContainersStatuses[1], second.ContainersStatuses[1]
	if before.State != runtimeapi.ContainerState_CONTAINER_RUNNING || after.State != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("c1 was %v and is %v, want running and exited", before.State, after.State)
	}
	if fmt.Sprintf("%p", before.Labels) != fmt.Sprintf("%p", after.Labels) {
		t.Error("labels that did not change were decoded again")
	}
}

func TestStatusCacheIsBounded(t *testing.T) {
	t.Parallel()
	codec, event := newEventCodec(func() {}), aContainerStarts()
	event.ContainersStatuses = event.ContainersStatuses[:1]
	event.ContainersStatuses[0].Message = strings.Repeat("x", 1<<20)
	send := func() {
		t.Helper()
		checkDecode(t, codec, encode(t, event))
		if codec.containers.bytes > maxStatusBytes || codec.sandboxes.bytes > maxStatusBytes {
			t.Fatalf("%d and %d bytes are known", codec.containers.bytes, codec.sandboxes.bytes)
		}
	}
	for i := range 12 {
		event.ContainersStatuses[0].Id, event.PodSandboxStatus.Id = fmt.Sprint("c", i), fmt.Sprint("s", i)
		send()
	}
	event.ContainerEventType, event.ContainersStatuses, event.PodSandboxStatus = deletedEvent, nil, nil
	for i := range 12 {
		for _, kind := range []string{"c", "s"} {
			event.ContainerId = fmt.Sprint(kind, i)
			send()
		}
	}
	if n := len(codec.containers.known) + len(codec.sandboxes.known); n != 0 || codec.containers.bytes+codec.sandboxes.bytes != 0 {
		t.Errorf("%d statuses are known after all are deleted", n)
	}
}
