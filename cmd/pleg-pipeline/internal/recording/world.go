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
	began time.Time
	last  [kinds]*step            // the last full list; nil before the first
	list  [kinds]*step            // the last full list that did not fail
	seen  [kinds]map[string]*item // what events and lists of one pod have shown since, by id; nil of what is gone
}

func newWorld(began time.Time) *world {
	return &world{began: began, list: [kinds]*step{{}, {}}, seen: [kinds]map[string]*item{{}, {}}}
}

func (w *world) apply(s *step) {
	answered := s.err == nil && !s.pending
	switch {
	case s.event != nil:
		w.applyEvent(s)
	case s.filtered && answered && s.pod != "":
		for _, it := range w.pod(s.kind, s.pod) {
			w.seen[s.kind][it.id] = nil
		}
		for _, it := range s.items {
			w.seen[s.kind][it.id] = it
		}
	case !s.filtered:
		w.last[s.kind] = s
		if answered {
			w.list[s.kind], w.seen[s.kind] = s, make(map[string]*item)
		}
	}
}

// applyEvent applies the statuses of an event, unless a list is newer. The state of an id
// never goes back, since an event may be older than a list of one pod.
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
			if old, known := w.find(kind(k), it.id); !known || old != nil && it.state > old.state {
				w.seen[k][it.id] = it
			}
		}
		if s.event.GetContainerEventType() == cri.ContainerEventType_CONTAINER_DELETED_EVENT {
			w.seen[k][s.event.GetContainerId()] = nil
		}
	}
}

// find returns the item with an id, or nil if it is gone, and whether the id is known.
func (w *world) find(k kind, id string) (it *item, known bool) {
	if it, known := w.seen[k][id]; known {
		return it, true
	}
	items := w.list[k].items
	if i := slices.IndexFunc(items, func(it *item) bool { return it.id == id }); i >= 0 {
		return items[i], true
	}
	return nil, false
}

// items returns all items: those of the last list as they are now, then new ones.
func (w *world) items(k kind) []*item {
	if len(w.seen[k]) == 0 {
		return w.list[k].items
	}
	var all []*item
	rest := maps.Clone(w.seen[k])
	for _, it := range w.list[k].items {
		if now, changed := w.seen[k][it.id]; changed {
			delete(rest, it.id)
			it = now
		}
		if it != nil {
			all = append(all, it)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(rest)) {
		if rest[id] != nil {
			all = append(all, rest[id])
		}
	}
	return all
}

// pod returns the items of a pod.
func (w *world) pod(k kind, pod string) []*item {
	return slices.DeleteFunc(slices.Clone(w.items(k)), func(it *item) bool { return it.pod != pod })
}

// round is a list of sandboxes and one of containers that were made at once, or
// one alone.
type round struct {
	at       time.Duration // of the later call
	end      time.Duration
	has      [kinds]bool
	distinct bool // its lists differ from those before, or fail in another way
}

// newRounds returns the distinct rounds of steps in the order of time.
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
	return slices.DeleteFunc(rounds, func(r round) bool { return !r.distinct })
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
	// A foreign recording may have very many equal lists, which share their items.
	if len(s.items) != len(last.items) || len(s.items) == 0 || &s.items[0] == &last.items[0] {
		return len(s.items) == len(last.items)
	}
	had := make(map[*item]bool, len(last.items))
	for _, it := range last.items {
		had[it] = true
	}
	return !slices.ContainsFunc(s.items, func(it *item) bool { return !had[it] })
}
