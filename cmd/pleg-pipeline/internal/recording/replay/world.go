package replay

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording/format"
)

// item is a listed sandbox or container. It does not change.
type item struct {
	message proto.Message
	id      string
	state   int32
}

func newItem(m proto.Message) *item {
	return &item{message: m, id: format.Field(m, "id").String(), state: stateOf(m)}
}

func stateOf(m proto.Message) int32 { return int32(format.Field(m, "state").Enum()) }

// itemOf returns the list item of something with this status: all fields that
// both have.
func itemOf(k format.Kind, status proto.Message, sandboxID string) *item {
	m := format.Empty(format.Messages[k].Item)
	status.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if same := m.ProtoReflect().Descriptor().Fields().ByName(fd.Name()); same != nil {
			m.ProtoReflect().Set(same, v)
		}
		return true
	})
	if c, ok := m.(*cri.Container); ok {
		c.PodSandboxId = sandboxID
	}
	return newItem(m)
}

// matches reports whether a list with this filter has the item.
func (it *item) matches(filter proto.Message) bool {
	if id := format.Field(filter, "id").String(); id != "" && id != it.id {
		return false
	}
	if id := format.Field(filter, "pod_sandbox_id").String(); id != "" && id != format.Field(it.message, "pod_sandbox_id").String() {
		return false
	}
	if state := format.Field(filter, "state").Message(); state.IsValid() && stateOf(state.Interface()) != it.state {
		return false
	}
	labels, match := format.Field(it.message, "labels").Map(), true
	format.Field(filter, "label_selector").Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		match = labels.Has(key) && labels.Get(key).String() == value.String()
		return match
	})
	return match
}

// entry is an item in the world.
type entry struct {
	*item
	changed time.Duration // when its state was first seen
}

// world is what exists at a time of the recording. Its time only grows.
type world struct {
	began time.Time
	base  [format.Kinds][]*item  // the last list, to which the next one refers
	view  [format.Kinds][]*entry // the same with later observations; a slice that was read does not change
	// last is the last list, answered the last one that succeeded.
	last, answered [format.Kinds]*step
	filtered       map[string]*step   // the last list of each filter
	removed        map[string]bool    // ids whose removal an event announced; none is used twice
	differs        [format.Kinds]bool // the view differs from the base
}

func newWorld(began time.Time) *world {
	return &world{began: began, filtered: make(map[string]*step), removed: make(map[string]bool)}
}

func (w *world) apply(s *step) {
	failed := s.err != nil || s.pending
	switch {
	case s.event != nil:
		w.applyEvent(s)
	case s.filter != nil:
		w.filtered[s.key] = s
		if !failed {
			w.applyFiltered(s)
		}
	default:
		w.last[s.kind] = s
		if !failed {
			w.applyList(s)
		}
	}
}

func (w *world) applyList(s *step) {
	w.answered[s.kind] = s
	if !s.same {
		w.base[s.kind] = s.items(w.base[s.kind])
	}
	if !s.same || w.differs[s.kind] {
		w.differs[s.kind] = false
		w.show(s.kind, w.base[s.kind], s.at)
	}
}

// show replaces the view. If an id is listed twice, the first one counts, as for
// the client.
func (w *world) show(k format.Kind, items []*item, at time.Duration) {
	before := make(map[string]*entry, len(w.view[k]))
	for _, e := range slices.Backward(w.view[k]) {
		before[e.id] = e
	}
	view := make([]*entry, len(items))
	for i, it := range items {
		view[i] = &entry{it, at}
		if old := before[it.id]; old != nil && old.state == it.state {
			view[i].changed = old.changed
		}
	}
	w.view[k] = view
}

// items returns the items of a list, given the list before.
func (s *step) items(last []*item) []*item {
	var items []*item
	for _, p := range s.parts {
		if p.item != nil {
			items = append(items, p.item)
		} else {
			items = append(items, last[p.first:p.first+p.number]...)
		}
	}
	return items
}

// applyFiltered replaces the items that match the filter.
func (w *world) applyFiltered(s *step) {
	items := s.items(nil)
	listed := make(map[string]bool)
	for _, it := range items {
		listed[it.id] = true
	}
	for _, e := range w.view[s.kind] {
		if !e.matches(s.filter) && !listed[e.id] {
			items = append(items, e.item)
		}
	}
	w.differs[s.kind] = true
	w.show(s.kind, items, s.at)
}

// applyEvent applies the statuses of an event, unless a list is newer.
func (w *world) applyEvent(s *step) {
	made := s.at
	if ns := s.event.GetCreatedAt(); ns > 0 && !w.began.IsZero() {
		made = min(made, time.Unix(0, ns).Sub(w.began))
	}
	newer := func(k format.Kind) bool { return w.answered[k] != nil && w.answered[k].at > made }
	sandbox, id := s.event.GetPodSandboxStatus(), s.event.GetContainerId()
	removed := s.event.GetContainerEventType() == cri.ContainerEventType_CONTAINER_DELETED_EVENT
	if removed {
		w.removed[id] = true
	}
	if !newer(format.Sandboxes) && sandbox != nil {
		w.applyItem(format.Sandboxes, itemOf(format.Sandboxes, sandbox, ""), s.at)
	}
	if newer(format.Containers) {
		return
	}
	for _, c := range s.event.GetContainersStatuses() {
		w.applyItem(format.Containers, itemOf(format.Containers, c, sandbox.GetId()), s.at)
	}
	if removed {
		w.applyItem(format.Containers, &item{id: id}, s.at)
	}
}

// applyItem adds, updates or removes one item. The state of an id never goes back,
// since an event may be older than the view.
func (w *world) applyItem(k format.Kind, it *item, at time.Duration) {
	i := w.index(k, it.id)
	view := slices.Clone(w.view[k])
	switch {
	case it.id == "", w.removed[it.id] && i < 0:
		return
	case w.removed[it.id]:
		view = slices.Delete(view, i, i+1)
	case i < 0:
		view = slices.Insert(view, 0, &entry{it, at})
	case it.state <= view[i].state:
		return
	default:
		view[i] = &entry{it, at}
	}
	w.view[k], w.differs[k] = view, true
}

func (w *world) index(k format.Kind, id string) int {
	return slices.IndexFunc(w.view[k], func(e *entry) bool { return e.id == id })
}

// round is a list of sandboxes and one of containers that were made at once, or
// one alone.
type round struct {
	at       time.Duration // of the later call
	end      time.Duration
	has      [format.Kinds]bool
	distinct bool // its lists differ from those before, or fail in another way
}

// newRounds returns the rounds of steps in the order of time.
func newRounds(steps []*step) []round {
	var rounds []round
	var last [format.Kinds]*step
	for _, s := range steps {
		if !s.isFullList() {
			continue
		}
		if n := len(rounds); n == 0 || rounds[n-1].has[s.kind] || s.at > rounds[n-1].end {
			rounds = append(rounds, round{})
		}
		r := &rounds[len(rounds)-1]
		r.at, r.has[s.kind] = s.at, true
		r.end = max(r.end, s.at+s.took)
		r.distinct = r.distinct || !s.equals(last[s.kind])
		last[s.kind] = s
	}
	return rounds
}

// equals reports whether a list has the same items as the one before, or the same
// error.
func (s *step) equals(last *step) bool {
	if last == nil || s.pending || last.pending {
		return false
	}
	if s.err != nil && last.err != nil {
		return s.err.Error() == last.err.Error()
	}
	return s.same
}
