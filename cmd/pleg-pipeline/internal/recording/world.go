package recording

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// item is a listed sandbox or container. It does not change.
type item struct {
	message   proto.Message
	id        string
	sandboxID string // of a container
	state     protoreflect.EnumNumber
}

func newItem(m proto.Message) *item {
	return &item{message: m, id: field(m, "id").String(), sandboxID: field(m, "pod_sandbox_id").String(), state: field(m, "state").Enum()}
}

// itemOf returns the list item of something with this status: all fields that
// both have.
func itemOf(k kind, status proto.Message, sandboxID string) *item {
	m := empty(messages[k].item)
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

// matcher tells which items a list with a filter has.
type matcher struct {
	id, sandboxID string
	state         *protoreflect.EnumNumber
	labels        protoreflect.Map
}

func newMatcher(filter proto.Message) matcher {
	m := matcher{
		id: field(filter, "id").String(), sandboxID: field(filter, "pod_sandbox_id").String(),
		labels: field(filter, "label_selector").Map(),
	}
	if state := field(filter, "state").Message(); state.IsValid() {
		n := field(state.Interface(), "state").Enum()
		m.state = &n
	}
	return m
}

func (m matcher) matches(it *item) bool {
	if m.id != "" && m.id != it.id || m.sandboxID != "" && m.sandboxID != it.sandboxID || m.state != nil && *m.state != it.state {
		return false
	}
	if m.labels.Len() == 0 {
		return true
	}
	labels, match := field(it.message, "labels").Map(), true
	m.labels.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
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
	view  [kinds][]*item           // the last list with later observations; a slice that was read does not change
	known [kinds]map[string]*entry // the view by id; if an id is listed twice, the first one counts, as for the client
	// last is the last list, answered the last one that succeeded.
	last, answered [kinds]*step
	filtered       map[string]*step // the last list of each filter
	removed        map[string]bool  // ids whose removal an event announced; none is used twice
	differs        [kinds]bool      // the view differs from the last list
}

func newWorld(began time.Time) *world {
	return &world{
		began: began, known: [kinds]map[string]*entry{{}, {}}, filtered: make(map[string]*step), removed: make(map[string]bool),
	}
}

// cost is how much work apply will have, in units of some 10 ns.
func (w *world) cost(s *step) int {
	view := len(w.view[s.kind]) + len(s.items)
	switch {
	case s.event != nil:
		changed := 2 + len(s.event.GetContainersStatuses())
		return changed * (1 + (len(w.view[sandboxes])+len(w.view[containers])+changed)/16)
	case s.filter != nil:
		return 1 + 12*view
	case s.same && !w.differs[s.kind]:
		return 1
	}
	return 1 + 8*view
}

func (w *world) apply(s *step) {
	switch failed := s.err != nil || s.pending; {
	case s.event != nil:
		w.applyEvent(s)
	case s.filter != nil:
		w.filtered[s.key] = s
		if !failed {
			w.applyFiltered(s)
		}
	default:
		w.last[s.kind] = s
		if failed {
			return
		}
		w.answered[s.kind] = s
		if !s.same || w.differs[s.kind] {
			w.differs[s.kind] = false
			w.show(s.kind, s.items, s.at)
		}
	}
}

// show replaces the view.
func (w *world) show(k kind, items []*item, at time.Duration) {
	known := make(map[string]*entry, len(items))
	for _, it := range slices.Backward(items) {
		known[it.id] = &entry{it, at}
		if old := w.known[k][it.id]; old != nil && old.state == it.state {
			known[it.id].changed = old.changed
		}
	}
	w.view[k], w.known[k] = items, known
}

// applyFiltered replaces the items that match the filter.
func (w *world) applyFiltered(s *step) {
	items := slices.Clone(s.items)
	filter := newMatcher(s.filter)
	listed := make(map[string]bool, len(s.items))
	for _, it := range s.items {
		listed[it.id] = true
	}
	for _, it := range w.view[s.kind] {
		if !filter.matches(it) && !listed[it.id] {
			items = append(items, it)
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
	newer := func(k kind) bool { return w.answered[k] != nil && w.answered[k].at > made }
	sandbox, id := s.event.GetPodSandboxStatus(), s.event.GetContainerId()
	removed := s.event.GetContainerEventType() == cri.ContainerEventType_CONTAINER_DELETED_EVENT
	if removed {
		w.removed[id] = true
	}
	if !newer(sandboxes) && sandbox != nil {
		w.applyItem(sandboxes, itemOf(sandboxes, sandbox, ""), s.at)
	}
	if newer(containers) {
		return
	}
	for _, c := range s.event.GetContainersStatuses() {
		w.applyItem(containers, itemOf(containers, c, sandbox.GetId()), s.at)
	}
	if removed {
		w.applyItem(containers, &item{id: id}, s.at)
	}
}

// applyItem adds, updates or removes one item. The state of an id never goes back,
// since an event may be older than the view.
func (w *world) applyItem(k kind, it *item, at time.Duration) {
	view, old := slices.Clone(w.view[k]), w.known[k][it.id]
	w.known[k][it.id] = &entry{it, at}
	switch {
	case it.id == "" || old == nil && w.removed[it.id]:
		delete(w.known[k], it.id)
		return
	case w.removed[it.id]:
		delete(w.known[k], it.id)
		view = slices.DeleteFunc(view, func(listed *item) bool { return listed.id == it.id })
	case old == nil:
		view = slices.Insert(view, 0, it)
	case it.state <= old.state:
		w.known[k][it.id] = old
		return
	default:
		view[slices.Index(view, old.item)] = it
	}
	w.view[k], w.differs[k] = view, true
}

// round is a list of sandboxes and one of containers that were made at once, or
// one alone.
type round struct {
	at       time.Duration // of the later call
	end      time.Duration
	has      [kinds]bool
	distinct bool // its lists differ from those before, or fail in another way
}

// newRounds returns the rounds of steps in the order of time.
func newRounds(steps []*step) []round {
	var rounds []round
	last := [kinds]*step{{pending: true}, {pending: true}}
	for _, s := range steps {
		if s.event != nil || s.filter != nil {
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
	switch {
	case s.pending || last.pending:
		return false
	case s.err != nil && last.err != nil:
		return s.err.Error() == last.err.Error()
	}
	return s.same
}
