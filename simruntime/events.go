package simruntime

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// EventMode is how GetContainerEvents answers.
type EventMode int

// The modes.
const (
	// EventsOn sends events.
	EventsOn EventMode = iota
	// EventsEOF ends each stream at once without an error, as CRI-O does when
	// pod events are not enabled.
	EventsEOF
	// EventsUnimplemented fails at the first Recv, as old runtimes do.
	EventsUnimplemented
)

// EventFaults change the streams of GetContainerEvents. The zero value changes
// nothing. Probabilities are drawn for each client.
type EventFaults struct {
	Mode EventMode // For streams opened from now on.

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
	// BreakAfter ends each stream opened from now on with codes.Unavailable
	// after that many messages. If zero, never.
	BreakAfter int
	// Stall makes the simulator wait for slow clients as containerd does: once
	// one has Options.EventBuffer events waiting, no client gets any more and
	// the RPCs that cause events hang until it reads or leaves. The control
	// API does not hang. Otherwise a slow client loses events.
	Stall bool
}

// ReorderHold is the longest time that a reordered event waits for another.
const ReorderHold = 50 * time.Millisecond

func (f EventFaults) validate() error {
	for _, p := range []struct {
		name  string
		value float64
	}{{"Loss", f.Loss}, {"Duplicate", f.Duplicate}, {"Reorder", f.Reorder}} {
		if p.value < 0 || p.value > 1 {
			return fmt.Errorf("EventFaults.%s is not in [0, 1]: %v", p.name, p.value)
		}
	}
	switch {
	case f.Mode < EventsOn || f.Mode > EventsUnimplemented:
		return fmt.Errorf("EventFaults.Mode is unknown: %d", f.Mode)
	case f.Delay < 0:
		return fmt.Errorf("EventFaults.Delay is negative: %v", f.Delay)
	case f.Replay < 0:
		return fmt.Errorf("EventFaults.Replay is negative: %d", f.Replay)
	case f.BreakAfter < 0:
		return fmt.Errorf("EventFaults.BreakAfter is negative: %d", f.BreakAfter)
	}
	return nil
}

// SetEventFaults replaces the faults of the event streams. The error names a
// field that is not valid.
func (rt *Runtime) SetEventFaults(f EventFaults) error {
	if err := f.validate(); err != nil {
		return fmt.Errorf("simruntime: %w", err)
	}
	rt.hub.setFaults(f)
	return nil
}

// BreakEvents ends all open event streams with codes.Unavailable and returns
// how many there were. Events on their way to those clients are lost.
func (rt *Runtime) BreakEvents() int { return rt.hub.breakAll() }

// EventStats count the events since the last reset.
type EventStats struct {
	Clients   int   // Streams open now.
	Emitted   int64 // Events that happened.
	Sent      int64 // Messages sent, all clients together.
	Lost      int64 // Lost to EventFaults.Loss.
	Dropped   int64 // Dropped because a client did not read, or none was connected.
	Connected int64 // Streams opened.
}

// errBroken ends a stream that is made to break.
var errBroken = status.Error(codes.Unavailable, "event stream broken")

// emit builds an event with the statuses as of now and hands it to the hub.
// It needs the lock of the runtime, which gives events their order.
func (tx *Txn) emit(kind cri.ContainerEventType, id string, sb *sandbox) {
	st := sb.status
	if kind == cri.ContainerEventType_CONTAINER_DELETED_EVENT && id == sb.id {
		// containerd has forgotten the sandbox's record by then and fills in
		// the zero time.
		st = &cri.PodSandboxStatus{
			Id: st.Id, Metadata: st.Metadata, State: st.State, CreatedAt: time.Time{}.UnixNano(),
			Network: st.Network, Linux: st.Linux,
			Labels: st.Labels, Annotations: st.Annotations, RuntimeHandler: st.RuntimeHandler,
		}
	}
	ev := &cri.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: tx.s.now(), PodSandboxStatus: st,
	}
	for _, c := range sb.containers {
		ev.ContainersStatuses = append(ev.ContainersStatuses, c.status)
	}
	tx.lastEvent = tx.rt.hub.publish(ev)
}
