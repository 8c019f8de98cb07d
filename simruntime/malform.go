package simruntime

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Values that no correct runtime answers.
const (
	undefinedState = 99
	orphanID       = "0000000000000000000000000000000000000000000000000000000000000000"
)

// concerns reports whether the fault is about the object.
func (f Fault) concerns(uid string, ids ...string) bool {
	return (f.PodUID == "" || string(f.PodUID) == uid) && (f.ID == "" || slices.Contains(ids, string(f.ID)))
}

// malformed returns a changed copy of a list entry or of a status.
func malformed[M proto.Message](m M, how Malform) M {
	m = proto.CloneOf(m)
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	switch how {
	case NilMetadata:
		r.Clear(fields.ByName("metadata"))
	case UnknownState:
		r.Set(fields.ByName("state"), protoreflect.ValueOfEnum(undefinedState))
	case WrongID:
		r.Set(fields.ByName("id"), protoreflect.ValueOfString(orphanID))
	case OrphanContainers:
		if f := fields.ByName("pod_sandbox_id"); f != nil {
			r.Set(f, protoreflect.ValueOfString(orphanID))
		}
	}
	return m
}

// malformStatus returns the status as the faults make it, nil included.
func malformStatus[M proto.Message](status M, faults []*rule) M {
	var none M
	for _, f := range faults {
		if f.Malform == NilStatus {
			return none
		}
		status = malformed(status, f.Malform)
	}
	return status
}

// listed is an entry of a list.
type listed interface {
	proto.Message
	GetId() string
	GetLabels() map[string]string
}

// malformList returns the entries as the faults make them; it does not change its argument.
func malformList[M listed](in []M, faults []*rule) []M {
	out := make([]M, 0, len(in))
	for _, item := range in {
		copies, ids := 1, []string{item.GetId()} // before they are malformed
		if c, ok := any(item).(*cri.Container); ok {
			ids = append(ids, c.GetPodSandboxId())
		}
		for _, f := range faults {
			if !f.concerns(item.GetLabels()[labelPodUID], ids...) {
				continue
			}
			item = malformed(item, f.Malform)
			if f.Malform == DuplicateIDs {
				copies++
			}
		}
		out = append(out, slices.Repeat([]M{item}, copies)...)
	}
	return out
}

// malformEvent returns the event as the faults make it. Faults of a pod or an object affect only
// its events.
func malformEvent(ev *cri.ContainerEventResponse, faults []*rule) *cri.ContainerEventResponse {
	st, id := ev.GetPodSandboxStatus(), ev.GetContainerId() // before they are malformed
	for _, f := range faults {
		if !f.concerns(st.GetMetadata().GetUid(), id, st.GetId()) {
			continue
		}
		ev = proto.CloneOf(ev)
		switch f.Malform {
		case NilMetadata:
			if ev.PodSandboxStatus != nil {
				ev.PodSandboxStatus.Metadata = nil
			}
		case UnknownState:
			ev.ContainerEventType = undefinedState
			for _, c := range ev.ContainersStatuses {
				c.State = undefinedState
			}
		case NilStatus:
			ev.PodSandboxStatus = nil
		case DuplicateIDs:
			ev.ContainersStatuses = append(ev.ContainersStatuses, ev.ContainersStatuses...)
		case WrongID:
			ev.ContainerId = orphanID
		}
	}
	return ev
}
