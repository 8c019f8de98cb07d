package cri

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// These tests are inside the package: tests over the wire would prove no more, and fuzzing would be
// slow.

const (
	createdEvent = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	startedEvent = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stoppedEvent = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deletedEvent = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

var eventNow = time.Unix(1_700_000_000, 0)

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// aContainerStarts is a complete event: c1 runs beside c0, which has exited.
func aContainerStarts() *event {
	return &event{
		ContainerId: "c1", ContainerEventType: startedEvent, CreatedAt: eventNow.UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u1", Attempt: 2},
			CreatedAt: 5, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
			Labels: map[string]string{labelPodUID: "u1", labelPodName: "of-sandbox", labelPodNamespace: "ns-of-sandbox"},
		},
		ContainersStatuses: []*runtimeapi.ContainerStatus{
			{
				Id: "c0", Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, CreatedAt: 6, Labels: kubeletLabels(),
				State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 7, Reason: "Error",
			},
			{
				Id: "c1", Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 1}, CreatedAt: 7, Labels: kubeletLabels(),
				State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			},
		},
	}
}

// hintOf converts an event as it arrives over the wire.
func hintOf(t *testing.T, c *Client, sent *event) pleg.Hint {
	t.Helper()
	received := &event{}
	if err := proto.Unmarshal(encode(t, sent), received); err != nil {
		t.Fatal(err)
	}
	return c.hint(received)
}

type event = runtimeapi.ContainerEventResponse

// endedBefore is the status of the other container of a complete event, which has exited.
func endedBefore() *pleg.ContainerStatus {
	return &pleg.ContainerStatus{ID: "c0", Name: "main", State: pleg.StateExited, CreatedAt: time.Unix(0, 6), ExitCode: 7, Reason: "Error", Labels: kubeletLabels()}
}

// endedSince is that of its own container, if it has exited.
func endedSince() *pleg.ContainerStatus {
	return &pleg.ContainerStatus{ID: "c1", Name: "main", Attempt: 1, State: pleg.StateExited, CreatedAt: time.Unix(0, 7), Labels: kubeletLabels()}
}

// eventCases change a complete event, and the parts of its hint.
var eventCases = map[string]struct {
	change func(*event)
	want   func(*pleg.Hint)
}{
	"complete": {func(*event) {}, func(*pleg.Hint) {}},
	"no sandbox status, labels name the pod": {func(e *event) { e.PodSandboxStatus = nil }, func(h *pleg.Hint) {
		h.Sandbox, h.PodName, h.PodNamespace = "", "of-label", "ns-of-label"
	}},
	"no sandbox status, a list names the pod": {func(e *event) {
		e.PodSandboxStatus, e.ContainersStatuses, e.ContainerId = nil, nil, "listed"
	}, func(h *pleg.Hint) { *h = pleg.Hint{UID: "u1", Container: "listed", State: pleg.StateRunning} }},
	"an id that no list has": {func(e *event) {
		e.PodSandboxStatus, e.ContainersStatuses = nil, nil
	}, func(h *pleg.Hint) { *h = pleg.Hint{Container: "c1", State: pleg.StateRunning} }},
	"a status of nothing": {func(e *event) {
		*e = event{PodSandboxStatus: &runtimeapi.PodSandboxStatus{}, ContainerId: "c1", ContainerEventType: startedEvent}
	}, func(h *pleg.Hint) { *h = pleg.Hint{Container: "c1", State: pleg.StateRunning} }},
	"nothing at all": {func(e *event) { *e = event{} }, func(h *pleg.Hint) { *h = pleg.Hint{State: pleg.StateCreated} }},
	"no metadata": {func(e *event) { e.PodSandboxStatus.Metadata = nil }, func(h *pleg.Hint) {
		h.PodName, h.PodNamespace = "of-sandbox", "ns-of-sandbox"
	}},
	"no uid": {func(e *event) { e.PodSandboxStatus.Metadata.Uid = "" }, func(*pleg.Hint) {}},
	"no uid, and no statuses": {func(e *event) { e.PodSandboxStatus.Metadata.Uid, e.ContainersStatuses = "", nil }, func(h *pleg.Hint) {
		h.Name, h.Attempt, h.Others = "", 0, nil
	}},
	"no sandbox id":   {func(e *event) { e.PodSandboxStatus.Id = "" }, func(h *pleg.Hint) { h.Sandbox = "" }},
	"no container id": {func(e *event) { e.ContainerId = "" }, func(h *pleg.Hint) { h.Container, h.Name, h.Attempt = "", "", 0 }},
	"no statuses":     {func(e *event) { e.ContainersStatuses = nil }, func(h *pleg.Hint) { h.Name, h.Attempt, h.Others = "", 0, nil }},
	"another container's status has no metadata": {func(e *event) { e.ContainersStatuses[0].Metadata = nil }, func(h *pleg.Hint) {
		h.Others[0].Name = ""
	}},
	"its status has no metadata": {func(e *event) {
		e.ContainersStatuses[1].Metadata = nil
		e.ContainersStatuses[1].Labels[labelContainerName] = "of-label"
		e.ContainersStatuses[1].Annotations = map[string]string{annotationRestartCount: "13"}
	}, func(h *pleg.Hint) { h.Name, h.Attempt = "of-label", 13 }},
	"a status is nil": {func(e *event) { e.ContainersStatuses[0] = nil }, func(h *pleg.Hint) { h.Others = nil }},
	"its status is there twice": {func(e *event) {
		e.ContainersStatuses[0] = proto.CloneOf(e.ContainersStatuses[1])
		e.ContainersStatuses[1].Metadata.Attempt = 9
	}, func(h *pleg.Hint) { h.Others = nil }},
	"a kind with no name":                 {func(e *event) { e.ContainerEventType = 44 }, func(h *pleg.Hint) { h.State = pleg.StateUnknown }},
	"a negative kind":                     {func(e *event) { e.ContainerEventType = -1 }, func(h *pleg.Hint) { h.State = pleg.StateUnknown }},
	"no time":                             {func(e *event) { e.CreatedAt = 0 }, func(*pleg.Hint) {}},
	"an hour behind":                      {func(e *event) { e.CreatedAt -= int64(time.Hour) }, func(*pleg.Hint) {}},
	"in seconds":                          {func(e *event) { e.CreatedAt /= int64(time.Second) }, func(*pleg.Hint) {}},
	"stopped, and its status lags behind": {func(e *event) { e.ContainerEventType = stoppedEvent }, func(h *pleg.Hint) { h.State = pleg.StateExited }},
	"stopped": {func(e *event) { e.ContainerId, e.ContainerEventType = "c0", stoppedEvent }, func(h *pleg.Hint) {
		h.Container, h.Attempt, h.State = "c0", 0, pleg.StateExited
		h.Status, h.Others = endedBefore(), nil
	}},
	"started, and it has ended since": {func(e *event) { e.ContainersStatuses[1].State = runtimeapi.ContainerState_CONTAINER_EXITED }, func(h *pleg.Hint) {
		h.Status = endedSince()
	}},
	"of the sandbox, and both have ended": {func(e *event) {
		e.ContainerId, e.ContainersStatuses[1].State = "s1", runtimeapi.ContainerState_CONTAINER_EXITED
	}, func(h *pleg.Hint) {
		h.Container, h.Name, h.Attempt, h.Others = "s1", "web", 2, []*pleg.ContainerStatus{endedBefore(), endedSince()}
	}},
	"removed": {func(e *event) { e.ContainerEventType, e.ContainersStatuses = deletedEvent, nil }, func(h *pleg.Hint) {
		h.State, h.Removed, h.Name, h.Attempt, h.Others = pleg.StateExited, true, "", 0, nil
	}},
	"of the sandbox": {func(e *event) { e.ContainerId = "s1" }, func(h *pleg.Hint) { h.Container, h.Name, h.Attempt = "s1", "web", 2 }},
	"of one of two pods with the UID": {func(e *event) { withUID(e, "u2"); e.ContainerId = "of-busybox" }, func(h *pleg.Hint) {
		h.UID, h.Container, h.Name, h.Attempt = "u2@other.busybox", "of-busybox", "", 0
	}},
	"of a new container of one of them": {func(e *event) { withUID(e, "u2"); e.PodSandboxStatus.Id = "busybox" }, func(h *pleg.Hint) {
		h.UID, h.Sandbox = "u2@other.busybox", "busybox"
	}},
	"of a third pod with the UID": {func(e *event) { withUID(e, "u2") }, func(h *pleg.Hint) { h.UID = "" }},
}

func kubeletLabels() map[string]string {
	return map[string]string{labelPodUID: "u1", labelPodName: "of-label", labelPodNamespace: "ns-of-label"}
}

func withUID(e *event, uid string) { e.PodSandboxStatus.Metadata.Uid = uid }

func TestHints(t *testing.T) {
	for name, tt := range eventCases {
		t.Run(name, func(t *testing.T) {
			e, c := aContainerStarts(), &Client{}
			want := pleg.Hint{
				UID: "u1", Container: "c1", Sandbox: "s1", State: pleg.StateRunning, Name: "main", Attempt: 1, PodName: "web", PodNamespace: "shop",
				Others: []*pleg.ContainerStatus{endedBefore()},
			}
			tt.change(e)
			tt.want(&want)
			c.last.Store(&lastList{
				pods: []*pleg.Pod{
					{UID: "u1", Containers: []*pleg.Container{{ID: "listed"}}},
					{UID: "u2"},
					{UID: "u2@other.busybox", Containers: []*pleg.Container{{ID: "of-busybox"}}, Sandboxes: []*pleg.Container{{ID: "busybox"}}},
				},
			})
			if got := hintOf(t, c, e); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// FuzzEvent converts any event.
func FuzzEvent(f *testing.F) {
	for _, name := range slices.Sorted(maps.Keys(eventCases)) {
		e := aContainerStarts()
		eventCases[name].change(e)
		f.Add(encode(f, e))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		event := &event{}
		if err := proto.Unmarshal(raw, event); err != nil {
			return // gRPC would not pass it on
		}
		h := hintOf(t, &Client{}, event)
		if h.Container != pleg.ContainerID(event.GetContainerId()) {
			t.Errorf("got %+v of %v", h, event)
		}
		if s := h.Status; s != nil && (s.ID != h.Container || s.State != pleg.StateExited || s.Name != h.Name || s.Attempt != h.Attempt) {
			t.Errorf("the status %+v is not the status of the hint %+v", s, h)
		}
		for _, s := range h.Others {
			if s.ID == h.Container || s.State != pleg.StateExited {
				t.Errorf("%+v is not the final status of another container than %s", s, h.Container)
			}
		}
	})
}
