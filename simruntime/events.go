package simruntime

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// EventFaults change the streams of GetContainerEvents. The zero value changes
// nothing. Probabilities are drawn for each client.
type EventFaults struct {
	Loss      float64 // Probability that an event is lost.
	Duplicate float64 // Probability that an event is sent twice in a row.
	// Reorder is the probability that an event is sent after the one that
	// follows it, or after ReorderHold if none does.
	Reorder float64
	// Delay is the time from an event to its sending. If zero, none.
	Delay time.Duration
	// Replay is the number of past events (at most 1024 are kept) that a
	// client is sent when it connects.
	Replay int
}

// ReorderHold is the longest time that a reordered event waits for another.
const ReorderHold = 50 * time.Millisecond

func (f EventFaults) validate() error {
	return errors.Join(
		checkProbability("EventFaults.Loss", f.Loss),
		checkProbability("EventFaults.Duplicate", f.Duplicate),
		checkProbability("EventFaults.Reorder", f.Reorder),
		checkNotNegative("EventFaults.Delay", f.Delay),
		checkNotNegative("EventFaults.Replay", f.Replay),
	)
}

// SetEventFaults replaces the faults of the event streams. The error names a
// field that is not valid.
func (rt *Runtime) SetEventFaults(f EventFaults) error {
	if err := f.validate(); err != nil {
		return fmt.Errorf("simruntime: %w", err)
	}
	rt.hub.mu.Lock()
	defer rt.hub.mu.Unlock()
	rt.hub.faults = f
	return nil
}

// BreakEvents ends all open event streams with codes.Unavailable and returns
// how many there were. Events on their way to those clients are lost.
func (rt *Runtime) BreakEvents() int {
	rt.hub.mu.Lock()
	defer rt.hub.mu.Unlock()
	n := 0
	for _, c := range rt.hub.clients {
		select {
		case <-c.broken:
		default:
			close(c.broken)
			n++
		}
	}
	return n
}

// errBroken ends a stream that is made to break.
var errBroken = status.Error(codes.Unavailable, "event stream broken")

// emit publishes an event with the statuses as of now. The caller holds the
// runtime's lock, which determines the order of events.
func (tx *Txn) emit(kind cri.ContainerEventType, id string, sb *sandbox) {
	st := sb.status
	if kind == cri.ContainerEventType_CONTAINER_DELETED_EVENT && id == sb.id() {
		// containerd has deleted the sandbox's record by then and sends the zero time.
		st = proto.CloneOf(st)
		st.CreatedAt = time.Time{}.UnixNano()
	}
	ev := &cri.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: tx.s.now(), PodSandboxStatus: st,
	}
	for _, c := range sb.containers {
		ev.ContainersStatuses = append(ev.ContainersStatuses, c.status)
	}
	tx.rt.hub.publish(ev)
}
