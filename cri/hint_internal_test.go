package cri

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// These tests are inside the package because the same events over the wire prove
// no more, and fuzzing them would be slow.

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
	labels := func() map[string]string { return map[string]string{labelPodUID: "u1"} }
	return &event{
		ContainerId: "c1", ContainerEventType: startedEvent, CreatedAt: eventNow.UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u1", Attempt: 2},
			CreatedAt: 5, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"}, Labels: labels(),
		},
		ContainersStatuses: []*runtimeapi.ContainerStatus{
			{
				Id: "c0", Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, CreatedAt: 6, Labels: labels(),
				State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 7, Reason: "Error",
			},
			{
				Id: "c1", Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 1}, CreatedAt: 7, Labels: labels(),
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
	return c.hint(received, eventNow)
}

type event = runtimeapi.ContainerEventResponse

// incompleteEvents change a complete event, and what its hint has besides the pod.
var incompleteEvents = map[string]struct {
	spoil func(*event)
	want  func(*pleg.Hint)
}{
	"no sandbox status, labels name the pod": {func(e *event) { e.PodSandboxStatus = nil }, func(h *pleg.Hint) { h.Sandbox = "" }},
	"no sandbox status, a list names the pod": {func(e *event) {
		e.PodSandboxStatus, e.ContainersStatuses, e.ContainerId = nil, nil, "listed"
	}, func(h *pleg.Hint) { h.Sandbox, h.Container = "", "listed" }},
	"an id that no list has": {func(e *event) {
		e.PodSandboxStatus, e.ContainersStatuses = nil, nil
	}, func(h *pleg.Hint) { h.UID, h.Sandbox = "", "" }},
	"a status of nothing": {func(e *event) {
		*e = event{PodSandboxStatus: &runtimeapi.PodSandboxStatus{}, ContainerId: "c1", ContainerEventType: startedEvent}
	}, func(h *pleg.Hint) { h.UID, h.Sandbox, h.At = "", "", time.Time{} }},
	"nothing at all":  {func(e *event) { *e = event{} }, func(h *pleg.Hint) { *h = pleg.Hint{State: pleg.StateCreated} }},
	"no metadata":     {func(e *event) { e.PodSandboxStatus.Metadata = nil }, func(*pleg.Hint) {}},
	"no uid":          {func(e *event) { e.PodSandboxStatus.Metadata.Uid = "" }, func(*pleg.Hint) {}},
	"no sandbox id":   {func(e *event) { e.PodSandboxStatus.Id = "" }, func(h *pleg.Hint) { h.Sandbox = "" }},
	"no container id": {func(e *event) { e.ContainerId = "" }, func(h *pleg.Hint) { h.Container = "" }},
	"no statuses":     {func(e *event) { e.ContainersStatuses = nil }, func(*pleg.Hint) {}},
	"a container's status is missing": {func(e *event) {
		e.ContainersStatuses = e.ContainersStatuses[:1]
	}, func(*pleg.Hint) {}},
	"a container without id":       {func(e *event) { e.ContainersStatuses[0].Id = "" }, func(*pleg.Hint) {}},
	"a container without metadata": {func(e *event) { e.ContainersStatuses[0].Metadata = nil }, func(*pleg.Hint) {}},
	"a container is nil":           {func(e *event) { e.ContainersStatuses[0] = nil }, func(*pleg.Hint) {}},
	"a container twice":            {func(e *event) { e.ContainersStatuses[0].Id = "c1" }, func(*pleg.Hint) {}},
	"a container is the sandbox":   {func(e *event) { e.ContainersStatuses[0].Id = "s1" }, func(*pleg.Hint) {}},
	"a state with no name":         {func(e *event) { e.ContainersStatuses[0].State = 44 }, func(*pleg.Hint) {}},
	"a sandbox state with no name": {func(e *event) { e.PodSandboxStatus.State = 44 }, func(*pleg.Hint) {}},
	"a kind with no name":          {func(e *event) { e.ContainerEventType = 44 }, func(h *pleg.Hint) { h.State = pleg.StateUnknown }},
	"a negative kind":              {func(e *event) { e.ContainerEventType = -1 }, func(h *pleg.Hint) { h.State = pleg.StateUnknown }},
	"no time":                      {func(e *event) { e.CreatedAt = 0 }, func(h *pleg.Hint) { h.At = time.Time{} }},
	"the zero time of Go":          {func(e *event) { e.CreatedAt = time.Time{}.UnixNano() }, func(h *pleg.Hint) { h.At = time.Time{} }},
	"in the future":                {func(e *event) { e.CreatedAt += int64(time.Minute) }, func(h *pleg.Hint) { h.At = time.Time{} }},
	"the statuses lag behind the event": {func(e *event) {
		e.ContainerEventType = stoppedEvent
	}, func(h *pleg.Hint) { h.State = pleg.StateExited }},
	"the sandbox stopped and is ready": {func(e *event) {
		e.ContainerId, e.ContainerEventType = "s1", stoppedEvent
	}, func(h *pleg.Hint) { h.Container, h.State = "s1", pleg.StateExited }},
	"the sandbox is deleted and has containers": {func(e *event) {
		e.ContainerId, e.ContainerEventType = "s1", deletedEvent
	}, func(h *pleg.Hint) { h.Container, h.State, h.Removed = "s1", pleg.StateExited, true }},
}

// A hint of an incomplete event has the identity in the event, and no pod.
func TestIncompleteEvents(t *testing.T) {
	for name, tt := range incompleteEvents {
		t.Run(name, func(t *testing.T) {
			e, c := aContainerStarts(), &Client{}
			want := pleg.Hint{UID: "u1", At: eventNow, Container: "c1", Sandbox: "s1", State: pleg.StateRunning}
			tt.spoil(e)
			tt.want(&want)
			c.known.Store(&known{pods: []*pleg.Pod{{UID: "u1", Containers: []*pleg.Container{{ID: "listed"}}}}})
			got := hintOf(t, c, e)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// FuzzEvent converts any event and requires that complete hints are consistent.
func FuzzEvent(f *testing.F) {
	seed := func(spoil func(*event)) {
		e := aContainerStarts()
		spoil(e)
		f.Add(encode(f, e))
	}
	for _, name := range slices.Sorted(maps.Keys(incompleteEvents)) {
		seed(incompleteEvents[name].spoil)
	}
	seed(func(*event) {})
	seed(func(e *event) { e.ContainerEventType = deletedEvent })
	seed(func(e *event) { e.ContainerEventType, e.ContainerId, e.ContainersStatuses = deletedEvent, "s1", nil })
	f.Fuzz(func(t *testing.T, raw []byte) {
		event := &event{}
		if err := proto.Unmarshal(raw, event); err != nil {
			return // gRPC would not hand it on
		}
		h := hintOf(t, &Client{}, event)
		if h.Container != pleg.ContainerID(event.GetContainerId()) || h.At.After(eventNow.Add(maxAhead)) {
			t.Errorf("got %+v of %v", h, event)
		}
		if (h.Pod == nil) != (h.Status == nil) {
			t.Errorf("a pod without its status, or the other way round: %+v", h)
		}
		if h.Pod != nil {
			checkWhole(t, h)
		}
	})
}

func checkWhole(t *testing.T, h pleg.Hint) {
	t.Helper()
	if h.UID == "" || h.At.IsZero() || h.Sandbox == "" || h.Pod.UID != h.UID || h.Status.UID != h.UID ||
		len(h.Pod.Containers) != len(h.Status.Containers) || len(h.Pod.Sandboxes) != len(h.Status.Sandboxes) {
		t.Errorf("complete and inconsistent: %+v", h)
	}
	seen := make(map[pleg.ContainerID]bool)
	for i, c := range h.Pod.Containers {
		st := h.Status.Container(c.ID)
		if c.ID == "" || seen[c.ID] || c.SandboxID != h.Sandbox || st == nil || st.State != c.State || h.Removed && c.ID == h.Container {
			t.Errorf("container %+v of %+v", c, h)
		}
		if i > 0 && cmp.Compare(h.Pod.Containers[i-1].CreatedAt.UnixNano(), c.CreatedAt.UnixNano()) < 0 && !c.CreatedAt.IsZero() && !h.Pod.Containers[i-1].CreatedAt.IsZero() {
			t.Errorf("containers are not newest first: %+v", h.Pod)
		}
		seen[c.ID] = true
	}
}

// containerd gathers the statuses of an event before it takes the time, so only what
// they show is certain to have happened before.
func TestEventIsAsCurrentAsItsStatusesShow(t *testing.T) {
	before := func(d time.Duration) int64 { return eventNow.Add(-d).UnixNano() }
	for name, tc := range map[string]struct {
		change func(*event)
		want   time.Time
	}{
		"nothing but the start of the sandbox": {func(e *event) { e.ContainersStatuses = e.ContainersStatuses[1:] }, time.Unix(1, 0)},
		"created": {func(e *event) {
			e.ContainersStatuses[1].CreatedAt = before(3 * time.Second)
		}, eventNow.Add(-3 * time.Second)},
		"started": {func(e *event) {
			e.ContainersStatuses[1].StartedAt = before(2 * time.Second)
		}, eventNow.Add(-2 * time.Second)},
		"another one finished":     {func(e *event) { e.ContainersStatuses[0].FinishedAt = before(time.Second) }, eventNow.Add(-time.Second)},
		"sandbox created":          {func(e *event) { e.PodSandboxStatus.CreatedAt = before(time.Minute) }, eventNow.Add(-time.Minute)},
		"at the time of the event": {func(e *event) { e.ContainersStatuses[1].StartedAt = before(0) }, eventNow},
		"finished after the event": {func(e *event) { e.ContainersStatuses[0].FinishedAt = before(-time.Second) }, time.Unix(1, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			e := aContainerStarts()
			tc.change(e)
			if got := hintOf(t, &Client{}, e); !got.AsOf.Equal(tc.want) || !got.At.Equal(eventNow) {
				t.Errorf("made at %v, as of %v, want %v and %v", got.At, got.AsOf, eventNow, tc.want)
			}
		})
	}
}
