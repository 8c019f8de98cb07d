package recording

import (
	"maps"
	"slices"
	"sort"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// object is a sandbox or a container in a list.
type object interface {
	proto.Message
	GetId() string
}

// changed returns a list as the events have changed it by a time: they stand in for lists that
// the recorded client did not make.
func (r *Recording) changed(list *call, kind int, by time.Duration) *call {
	changes := r.changes(list.at, kind, by)
	if len(changes) == 0 {
		return list
	}
	message := empty(list.reply)
	to, from := itemsOf(message), itemsOf(list.reply)
	for i := range from.Len() {
		it := from.Get(i).Message().Interface().(object)
		if change, ok := changes[it.GetId()]; ok {
			delete(changes, it.GetId())
			it = change
		}
		if it != nil {
			to.Append(protoreflect.ValueOf(it.ProtoReflect()))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(changes)) {
		if it := changes[id]; it != nil {
			to.Append(protoreflect.ValueOf(it.ProtoReflect()))
		}
	}
	return &call{at: list.at, took: list.took, reply: message}
}

// changes returns what the events of some time say about items, by their ids; nil of what is
// gone.
func (r *Recording) changes(after time.Duration, kind int, by time.Duration) map[string]object {
	changes := make(map[string]object)
	for _, p := range r.stream[sort.Search(len(r.stream), func(i int) bool { return r.stream[i].at > after }):] {
		e, ok := p.reply.(*cri.ContainerEventResponse)
		switch created := time.Unix(0, e.GetCreatedAt()).Sub(r.Header.Began); {
		case p.at > by:
			return changes
		case !ok, e.GetCreatedAt() > 0 && created < after:
			continue
		}
		for _, it := range itemsIn(e, kind) {
			if last, known := changes[it.GetId()]; !known || last != nil { // what is gone stays so
				changes[it.GetId()] = it
			}
		}
		if e.GetContainerEventType() == cri.ContainerEventType_CONTAINER_DELETED_EVENT {
			changes[e.GetContainerId()] = nil
		}
	}
	return changes
}

// itemsIn returns the list items of what an event has the status of: all fields that both have.
func itemsIn(e *cri.ContainerEventResponse, kind int) (items []object) {
	listed := func(it object, status proto.Message) {
		fields := it.ProtoReflect().Descriptor().Fields()
		status.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
			if same := fields.ByName(field.Name()); same != nil {
				it.ProtoReflect().Set(same, value)
			}
			return true
		})
		items = append(items, it)
	}
	switch {
	case kind == kinds[listContainers]:
		for _, c := range e.GetContainersStatuses() {
			listed(&cri.Container{PodSandboxId: e.GetPodSandboxStatus().GetId()}, c)
		}
	case e.GetPodSandboxStatus() != nil:
		listed(&cri.PodSandbox{}, e.GetPodSandboxStatus())
	}
	return items
}
