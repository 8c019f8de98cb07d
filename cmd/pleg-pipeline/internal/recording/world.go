package recording

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// item is a listed sandbox or container. It is never changed.
type item struct {
	message   proto.Message
	id        string
	state     int32
	sandboxID string // of a container
	labels    map[string]string
}

func newItem(m proto.Message) *item {
	switch m := m.(type) {
	case *runtimeapi.PodSandbox:
		return &item{message: m, id: m.GetId(), state: int32(m.GetState()), labels: m.GetLabels()}
	case *runtimeapi.Container:
		return &item{message: m, id: m.GetId(), state: int32(m.GetState()), sandboxID: m.GetPodSandboxId(), labels: m.GetLabels()}
	}
	panic("recording: no item")
}

// sandboxItem is what a list would show of a sandbox with this status.
func sandboxItem(s *runtimeapi.PodSandboxStatus) *item {
	return newItem(&runtimeapi.PodSandbox{
		Id: s.GetId(), Metadata: s.GetMetadata(), State: s.GetState(), CreatedAt: s.GetCreatedAt(),
		Labels: s.GetLabels(), Annotations: s.GetAnnotations(), RuntimeHandler: s.GetRuntimeHandler(),
	})
}

func containerItem(s *runtimeapi.ContainerStatus, sandboxID string) *item {
	return newItem(&runtimeapi.Container{
		Id: s.GetId(), PodSandboxId: sandboxID, Metadata: s.GetMetadata(), Image: s.GetImage(), ImageRef: s.GetImageRef(),
		ImageId: s.GetImageId(), State: s.GetState(), CreatedAt: s.GetCreatedAt(), Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
	})
}

// matches reports whether a list with this filter shows the item.
func (it *item) matches(filter proto.Message) bool {
	var id, sandboxID string
	var state *int32
	var labels map[string]string
	switch f := filter.(type) {
	case *runtimeapi.PodSandboxFilter:
		id, labels = f.GetId(), f.GetLabelSelector()
		if f.GetState() != nil {
			state = new(int32(f.GetState().GetState()))
		}
	case *runtimeapi.ContainerFilter:
		id, sandboxID, labels = f.GetId(), f.GetPodSandboxId(), f.GetLabelSelector()
		if f.GetState() != nil {
			state = new(int32(f.GetState().GetState()))
		}
	}
	if id != "" && id != it.id || sandboxID != "" && sandboxID != it.sandboxID || state != nil && *state != it.state {
		return false
	}
	for key, value := range labels {
		if has, ok := it.labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// entry is an item in the world.
type entry struct {
	*item
	changed time.Duration // when its state was first seen
}

// world is what exists at a time of the recording. It only goes forward.
type world struct {
	began time.Time
	base  [kinds][]*item  // the last list, by which the next one is told
	view  [kinds][]*entry // that, and what was learned since
	// last is how the last list went, answered the last that succeeded.
	last, answered [kinds]*step
	filtered       map[string]*step // the last of each question with a filter
	// removed are the ids that an event has told to be removed; no id is used twice.
	removed map[string]bool
	learned [kinds]bool // the view differs from the base
}

func newWorld(began time.Time) *world {
	return &world{began: began, filtered: make(map[string]*step), removed: make(map[string]bool)}
}

func (w *world) apply(s *step) {
	switch {
	case s.event != nil:
		w.applyEvent(s)
	case s.filter != nil:
		w.filtered[s.key] = s
		if s.err == nil && !s.pending {
			w.applyFiltered(s)
		}
	default:
		w.last[s.kind] = s
		if s.err == nil && !s.pending {
			w.applyList(s)
		}
	}
}

func (w *world) applyList(s *step) {
	w.answered[s.kind] = s
	if !s.same {
		w.base[s.kind] = itemsOf(s, w.base[s.kind])
	} else if !w.learned[s.kind] {
		return
	}
	w.learned[s.kind] = false
	w.show(s.kind, w.base[s.kind], s.at)
}

// show makes items all that there is. The first of an id counts, as for the
// client.
func (w *world) show(k kind, items []*item, at time.Duration) {
	before := make(map[string]*entry, len(w.view[k]))
	for _, e := range slices.Backward(w.view[k]) {
		before[e.id] = e
	}
	view := make([]*entry, len(items))
	for i, it := range items {
		e := &entry{item: it, changed: at}
		if old := before[it.id]; old != nil && old.state == it.state {
			e.changed = old.changed
		}
		view[i] = e
	}
	w.view[k] = view
}

// itemsOf returns the items of a list, given the list before.
func itemsOf(s *step, last []*item) []*item {
	var items []*item
	for _, p := range s.parts {
		if p.item != nil {
			items = append(items, p.item)
			continue
		}
		items = append(items, last[p.first:p.first+p.number]...)
	}
	return items
}

// applyFiltered replaces what the filter shows.
func (w *world) applyFiltered(s *step) {
	items := itemsOf(s, nil)
	shown := make(map[string]bool)
	for _, it := range items {
		shown[it.id] = true
	}
	rest := items
	for _, e := range w.view[s.kind] {
		if !e.matches(s.filter) && !shown[e.id] {
			rest = append(rest, e.item)
		}
	}
	w.learned[s.kind] = true
	w.show(s.kind, rest, s.at)
}

// applyEvent takes in what an event tells, unless a list is newer.
func (w *world) applyEvent(s *step) {
	made := s.at
	if ns := s.event.GetCreatedAt(); ns > 0 && !w.began.IsZero() {
		made = min(made, time.Unix(0, ns).Sub(w.began))
	}
	sandbox := s.event.GetPodSandboxStatus()
	removed := s.event.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	if removed {
		w.removed[s.event.GetContainerId()] = true
	}
	if !w.newer(sandboxes, made) {
		w.learn(sandboxes, sandboxItem(sandbox), s.at)
	}
	if w.newer(containers, made) {
		return
	}
	for _, c := range s.event.GetContainersStatuses() {
		w.learn(containers, containerItem(c, sandbox.GetId()), s.at)
	}
	if removed {
		w.learn(containers, &item{id: s.event.GetContainerId()}, s.at)
	}
}

// newer reports whether the last list was made after a time.
func (w *world) newer(k kind, than time.Duration) bool {
	return w.answered[k] != nil && w.answered[k].at > than
}

// learn takes in one item. The state of an id never goes back: an event may be
// older than what is known.
func (w *world) learn(k kind, it *item, at time.Duration) {
	i := slices.IndexFunc(w.view[k], func(e *entry) bool { return e.id == it.id })
	switch {
	case it.id == "":
		return
	case w.removed[it.id]:
		if i < 0 {
			return
		}
		w.view[k] = slices.Delete(slices.Clone(w.view[k]), i, i+1)
	case i < 0:
		w.view[k] = slices.Insert(slices.Clone(w.view[k]), 0, &entry{item: it, changed: at})
	case it.state <= w.view[k][i].state:
		return
	default:
		w.view[k] = slices.Clone(w.view[k])
		w.view[k][i] = &entry{item: it, changed: at}
	}
	w.learned[k] = true
}

// find returns the entry of an id, or nil.
func (w *world) find(k kind, id string) *entry {
	if i := slices.IndexFunc(w.view[k], func(e *entry) bool { return e.id == id }); i >= 0 {
		return w.view[k][i]
	}
	return nil
}

// snapshot is the world as a list shows it.
type snapshot struct {
	items [kinds][]*entry
	how   [kinds]*step // nil if there was no list yet
}

// snapshot returns what lists show now; it is not changed later.
func (w *world) snapshot() snapshot { return snapshot{items: w.view, how: w.last} }
