package recording

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listed is a message in a list.
type listed interface {
	proto.Message
	GetId() string
	GetLabels() map[string]string
}

func newListed(k kind) listed {
	if k == sandboxes {
		return &cri.PodSandbox{}
	}
	return &cri.Container{}
}

// item is a listed sandbox or container. It does not change.
type item struct {
	message listed
	id, pod string
	state   int32
}

func newItem(m listed) *item {
	it := &item{message: m, id: m.GetId(), pod: m.GetLabels()[labelPodUID]}
	switch m := m.(type) {
	case *cri.PodSandbox:
		it.state = int32(m.GetState())
	case *cri.Container:
		it.state = int32(m.GetState())
	}
	return it
}

// stateOf returns the state in the answer to a status call.
func stateOf(answer proto.Message) int32 {
	switch a := answer.(type) {
	case *cri.PodSandboxStatusResponse:
		return int32(a.GetStatus().GetState())
	case *cri.ContainerStatusResponse:
		return int32(a.GetStatus().GetState())
	}
	return 0
}

// itemsIn returns the list items of what an event has the status of: all fields that both
// have.
func itemsIn(e *cri.ContainerEventResponse) (items [kinds][]*item) {
	add := func(k kind, status proto.Message) {
		m := newListed(k)
		status.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if same := m.ProtoReflect().Descriptor().Fields().ByName(fd.Name()); same != nil {
				m.ProtoReflect().Set(same, v)
			}
			return true
		})
		if c, ok := m.(*cri.Container); ok {
			c.PodSandboxId = e.GetPodSandboxStatus().GetId()
		}
		items[k] = append(items[k], newItem(m))
	}
	if s := e.GetPodSandboxStatus(); s != nil {
		add(sandboxes, s)
	}
	for _, c := range e.GetContainersStatuses() {
		add(containers, c)
	}
	return items
}

// world is what exists at a time of the recording. Its time only grows.
type world struct {
	began   time.Time
	last    [kinds]*step              // the last full list; nil before the first
	list    [kinds]*step              // the last full list that did not fail
	listed  [kinds]map[string][]*item // its items by pod; nil until they are needed
	pods    [kinds]map[string][]*item // what events and lists of one pod have shown since
	removed [kinds]map[string]bool    // the ids that events have removed since
}

func newWorld(began time.Time) *world {
	w := &world{began: began}
	for k := range kinds {
		w.show(k, &step{})
	}
	return w
}

// show replaces everything by a full list.
func (w *world) show(k kind, list *step) {
	w.list[k], w.listed[k], w.pods[k], w.removed[k] = list, nil, make(map[string][]*item), make(map[string]bool)
}

func (w *world) apply(s *step) {
	answered := s.err == nil && !s.pending
	switch {
	case s.event != nil:
		w.applyEvent(s)
	case s.filtered && answered && s.pod != "":
		w.pods[s.kind][s.pod] = s.items
	case !s.filtered:
		w.last[s.kind] = s
		if answered {
			w.show(s.kind, s)
		}
	}
}

// applyEvent applies the statuses of an event, unless a list is newer.
func (w *world) applyEvent(s *step) {
	made := s.at
	if ns := s.event.GetCreatedAt(); ns > 0 && !w.began.IsZero() {
		made = min(made, time.Unix(0, ns).Sub(w.began))
	}
	for k, items := range itemsIn(s.event) {
		if w.list[k].at > made {
			continue
		}
		for _, it := range items {
			w.put(kind(k), it)
		}
		if s.event.GetContainerEventType() == cri.ContainerEventType_CONTAINER_DELETED_EVENT {
			w.removed[k][s.event.GetContainerId()] = true
		}
	}
}

// put adds or updates one item. The state of an id never goes back, since an event may be
// older than a list.
func (w *world) put(k kind, it *item) {
	items := slices.Clone(w.pod(k, it.pod))
	switch i := slices.IndexFunc(items, func(old *item) bool { return old.id == it.id }); {
	case i < 0:
		items = slices.Insert(items, 0, it)
	case it.state > items[i].state:
		items[i] = it
	}
	w.pods[k][it.pod] = items
}

// pod returns the items of a pod, removed ones included.
func (w *world) pod(k kind, pod string) []*item {
	if items, ok := w.pods[k][pod]; ok {
		return items
	}
	if w.listed[k] == nil {
		w.listed[k] = make(map[string][]*item)
		for _, it := range w.list[k].items {
			w.listed[k][it.pod] = append(w.listed[k][it.pod], it)
		}
	}
	return w.listed[k][pod]
}

// items returns all items, those of pods that have changed since the list first.
func (w *world) items(k kind) []*item {
	if len(w.pods[k]) == 0 && len(w.removed[k]) == 0 {
		return w.list[k].items
	}
	var all []*item
	for _, pod := range slices.Sorted(maps.Keys(w.pods[k])) {
		all = append(all, w.pods[k][pod]...)
	}
	for _, it := range w.list[k].items {
		if _, changed := w.pods[k][it.pod]; !changed {
			all = append(all, it)
		}
	}
	return w.without(k, all)
}

// without returns the items that no event has removed.
func (w *world) without(k kind, items []*item) []*item {
	return slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return w.removed[k][it.id] })
}

// find returns the item with an id, or nil.
func (w *world) find(k kind, id string) *item {
	items := w.items(k)
	if i := slices.IndexFunc(items, func(it *item) bool { return it.id == id }); i >= 0 {
		return items[i]
	}
	return nil
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
		if s.event != nil || s.filtered {
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

// equals reports whether a list has the same items as the one before, in any order, or
// the same error.
func (s *step) equals(last *step) bool {
	switch {
	case s.pending || last.pending:
		return false
	case s.err != nil || last.err != nil:
		return s.err != nil && last.err != nil && s.err.Error() == last.err.Error()
	}
	had := make(map[*item]bool, len(last.items))
	for _, it := range last.items {
		had[it] = true
	}
	return len(s.items) == len(last.items) && !slices.ContainsFunc(s.items, func(it *item) bool { return !had[it] })
}
