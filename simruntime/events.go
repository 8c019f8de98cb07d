package simruntime

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BreakEvents ends all open event streams with codes.Unavailable and returns
// how many there were. Events on their way to those clients are lost.
func (rt *Runtime) BreakEvents() int {
	rt.hub.mu.Lock()
	defer rt.hub.mu.Unlock()
	n := len(rt.hub.clients)
	for _, c := range rt.hub.clients {
		c.end(errBroken)
	}
	rt.hub.clients = nil
	return n
}

// errBroken ends a stream that is made to break.
var errBroken = status.Error(codes.Unavailable, "event stream broken")

// emit publishes an event with the statuses as of now. The caller holds the
// runtime's lock, which determines the order of events.
func (s *State) emit(kind cri.ContainerEventType, id string, sb *sandbox) {
	st := sb.status
	if kind == cri.ContainerEventType_CONTAINER_DELETED_EVENT && id == sb.id() {
		// containerd has deleted the sandbox's record by then and sends the zero time.
		st = proto.CloneOf(st)
		st.CreatedAt = time.Time{}.UnixNano()
	}
	ev := &cri.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: s.now().UnixNano(), PodSandboxStatus: st,
	}
	for _, c := range sb.containers {
		ev.ContainersStatuses = append(ev.ContainersStatuses, c.status)
	}
	s.rt.hub.publish(ev)
}
