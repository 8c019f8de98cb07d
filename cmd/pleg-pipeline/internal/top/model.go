package top

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// The feed keeps at least maxFeed events. It is cut to that number once it contains twice as many:
	// copying is rare.
	maxFeed = 500
	// rateSeconds is the time over which the events of a pod are counted.
	rateSeconds = 60
)

// model contains the data of the view. Only the loop uses it.
type model struct {
	state  State
	loaded bool // whether there is a state
	pods   map[pleg.PodUID]*pod
	feed   []fleet.Event // oldest first
	err    error         // the reason why the state is not known

	disconnected string // the reason why there are no events; empty if connected

	filter  string
	editing bool   // whether keys go into the filter
	sort    string // one of Orders
	paused  bool
	frozen  []fleet.Event // the feed while paused
	missed  int           // events since the pause
	help    bool
	rows    []*pod // in the chosen order
	top     int    // the first row on the screen
	page    int    // rows on the screen; set by the view
}

type pod struct {
	view.Pod

	last   *fleet.Event
	recent []int64 // Unix times of the events in the last rateSeconds
}

// A daemon that is broken or hostile may send any event. These limit the bytes of a name, the
// pods, and the events of a pod that are counted.
const (
	maxName   = 256
	maxPods   = 20_000
	maxRecent = 10_000
)

func newModel(o Options) *model {
	return &model{pods: make(map[pleg.PodUID]*pod), filter: o.Filter, sort: Orders()[0]}
}

// apply stores an answer of the source.
func (m *model) apply(u update, now time.Time) {
	if u.err != nil {
		m.err = u.err
		return
	}
	m.err, m.state, m.loaded = nil, u.state, true
	seen := make(map[pleg.PodUID]bool, len(u.state.Pods))
	for _, next := range u.state.Pods {
		seen[next.UID] = true
		p := m.pod(next.UID)
		next.Name, next.Namespace = cmp.Or(next.Name, p.Name), cmp.Or(next.Namespace, p.Namespace)
		p.Pod = next
	}
	for uid := range m.pods {
		if !seen[uid] {
			delete(m.pods, uid)
		}
	}
	m.arrange(now)
}

func (m *model) pod(uid pleg.PodUID) *pod {
	p := m.pods[uid]
	if p == nil {
		p = &pod{Pod: view.Pod{UID: uid, State: view.Unknown}}
		m.pods[uid] = p
	}
	return p
}

func (m *model) addEvent(ev fleet.Event, now time.Time) {
	m.disconnected = ""
	switch ev.Type {
	case pleg.Synced, pleg.Bookmark:
		return
	case pleg.Gap:
		maps.DeleteFunc(m.pods, func(_ pleg.PodUID, p *pod) bool { return ev.Node == "" || ev.Node == p.Node })
		m.addToFeed(shortened(ev))
		m.arrange(now)
		return
	}
	ev = shortened(ev)
	if len(m.pods) >= maxPods && m.pods[ev.PodUID] == nil {
		clear(m.pods) // the next answer of the source contains the pods that exist
		m.rows = nil
	}
	p := m.pod(ev.PodUID)
	p.Name, p.Namespace = cmp.Or(p.Name, ev.PodName), cmp.Or(p.Namespace, ev.PodNamespace)
	if !ev.Sandbox || p.last == nil || p.last.Sandbox { // the event of a container says more
		p.last = &ev
	}
	if ev.Replayed {
		return
	}
	if len(p.recent) < maxRecent {
		p.recent = append(p.recent, now.Unix())
	}
	m.addToFeed(ev)
}

// shortened returns an event with only the fields that are shown, and copies of their texts, cut to a length:
// texts may be parts of one long message, which must not stay in memory.
func shortened(ev fleet.Event) fleet.Event {
	ev.Image, ev.At, ev.Status = "", "", nil
	for _, text := range []*string{
		&ev.PodName, &ev.PodNamespace, &ev.ContainerName, &ev.Reason, &ev.Epoch, (*string)(&ev.PodUID), (*string)(&ev.ContainerID), (*string)(&ev.Type), &ev.Node,
	} {
		*text = strings.Clone((*text)[:min(len(*text), maxName)])
	}
	return ev
}

func (m *model) addToFeed(ev fleet.Event) {
	if m.paused {
		m.missed++
	}
	m.feed = append(m.feed, ev)
	if len(m.feed) > 2*maxFeed {
		m.feed = slices.Clone(m.feed[len(m.feed)-maxFeed:])
	}
}

// recentEvents returns the number of events in the last rateSeconds.
func (m *model) recentEvents() int {
	sum := 0
	for _, p := range m.pods {
		sum += len(p.recent)
	}
	return sum
}

// arrange filters and sorts the pods again, and keeps the selection.
func (m *model) arrange(now time.Time) {
	m.rows = m.rows[:0]
	for _, p := range m.pods {
		for len(p.recent) > 0 && p.recent[0] <= now.Unix()-rateSeconds {
			p.recent = p.recent[1:]
		}
		if p.matches(m.filter) {
			m.rows = append(m.rows, p)
		}
	}
	slices.SortFunc(m.rows, func(a, b *pod) int { return compare(m.sort, a, b) })
}

// Orders are the orders of the pods; the first is the default.
func Orders() []string { return append([]string{"severity", "events"}, view.PodOrders()...) }

// compare orders two pods. By severity, pods with trouble come first, then the busiest, then
// the most restarted.
func compare(order string, a, b *pod) int {
	busier := cmp.Compare(len(b.recent), len(a.recent))
	switch order {
	case "severity":
		return cmp.Or(view.CompareSeverity(&a.Pod, &b.Pod), busier, view.ComparePods("restarts", &a.Pod, &b.Pod))
	case "events":
		return cmp.Or(busier, view.ComparePods("name", &a.Pod, &b.Pod))
	}
	return view.ComparePods(order, &a.Pod, &b.Pod)
}

// events returns the feed, newest first: events of pods that match the filter, and gaps.
func (m *model) events(most int) []fleet.Event {
	from := m.feed
	if m.paused {
		from = m.frozen
	}
	var shown []fleet.Event
	for i := len(from) - 1; i >= 0 && len(shown) < most; i-- {
		if from[i].Type == pleg.Gap || eventMatches(from[i], m.filter) {
			shown = append(shown, from[i])
		}
	}
	return shown
}
