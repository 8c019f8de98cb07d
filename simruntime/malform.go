package simruntime

import (
	"slices"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Values that no correct runtime answers.
const (
	undefinedState = 99
	orphanID       = "0000000000000000000000000000000000000000000000000000000000000000"
)

// concerns reports whether the fault is about the object.
func (f Fault) concerns(uid string, ids ...string) bool {
	return (f.PodUID == "" || f.PodUID == uid) && (f.ID == "" || slices.Contains(ids, f.ID))
}

// malformStatus malforms the answer of a status call. Other answers are malformed
// where they are built.
func malformStatus(resp any, faults []Fault) any {
	for _, f := range faults {
		switch r := resp.(type) {
		case *cri.PodSandboxStatusResponse:
			resp = malformSandboxStatus(r, f.Malform)
		case *cri.ContainerStatusResponse:
			resp = malformContainerStatus(r, f.Malform)
		}
	}
	return resp
}

func malformSandboxStatus(r *cri.PodSandboxStatusResponse, m Malform) *cri.PodSandboxStatusResponse {
	r = proto.CloneOf(r)
	switch m {
	case NilStatus:
		r.Status = nil
	case NilMetadata:
		if r.Status != nil {
			r.Status.Metadata = nil
		}
	case UnknownState:
		if r.Status != nil {
			r.Status.State = undefinedState
		}
	case WrongID:
		if r.Status != nil {
			r.Status.Id = orphanID
		}
	}
	return r
}

func malformContainerStatus(r *cri.ContainerStatusResponse, m Malform) *cri.ContainerStatusResponse {
	r = proto.CloneOf(r)
	switch m {
	case NilStatus:
		r.Status = nil
	case NilMetadata:
		if r.Status != nil {
			r.Status.Metadata = nil
		}
	case UnknownState:
		if r.Status != nil {
			r.Status.State = undefinedState
		}
	case WrongID:
		if r.Status != nil {
			r.Status.Id = orphanID
		}
	}
	return r
}

// malformSandboxes returns the entries as the faults make them; those given
// are not changed.
func malformSandboxes(in []*cri.PodSandbox, faults []Fault) []*cri.PodSandbox {
	out := make([]*cri.PodSandbox, 0, len(in))
	for _, item := range in {
		copies := 1
		for _, f := range faults {
			if !f.concerns(item.GetLabels()[labelPodUID], item.GetId()) {
				continue
			}
			item = proto.CloneOf(item)
			switch f.Malform {
			case NilMetadata:
				item.Metadata = nil
			case UnknownState:
				item.State = undefinedState
			case DuplicateIDs:
				copies++
			case WrongID:
				item.Id = orphanID
			}
		}
		for range copies {
			out = append(out, item)
		}
	}
	return out
}

// malformContainers is malformSandboxes for containers.
func malformContainers(in []*cri.Container, faults []Fault) []*cri.Container {
	out := make([]*cri.Container, 0, len(in))
	for _, item := range in {
		copies := 1
		for _, f := range faults {
			if !f.concerns(item.GetLabels()[labelPodUID], item.GetId(), item.GetPodSandboxId()) {
				continue
			}
			item = proto.CloneOf(item)
			switch f.Malform {
			case NilMetadata:
				item.Metadata = nil
			case UnknownState:
				item.State = undefinedState
			case OrphanContainers:
				item.PodSandboxId = orphanID
			case DuplicateIDs:
				copies++
			case WrongID:
				item.Id = orphanID
			}
		}
		for range copies {
			out = append(out, item)
		}
	}
	return out
}

// malformEvent returns the event as the faults make it. Those about a pod or an
// object affect only its events.
func malformEvent(ev *cri.ContainerEventResponse, faults []Fault) *cri.ContainerEventResponse {
	for _, f := range faults {
		st := ev.GetPodSandboxStatus()
		if !f.concerns(st.GetMetadata().GetUid(), ev.GetContainerId(), st.GetId()) {
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
