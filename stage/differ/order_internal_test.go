package differ

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// explore tries every action in every world that can be reached.
type explorer struct {
	t    *testing.T
	seen map[string]struct{}
}

func (e *explorer) explore(w *world, trace []string) {
	key := w.key()
	if _, ok := e.seen[key]; ok || e.t.Failed() {
		return
	}
	e.seen[key] = struct{}{}
	e.requireTruth(w.clone(), trace)
	next := func(what string, do func(w *world) string) {
		c := w.clone()
		if err := do(c); err != "" {
			e.t.Errorf("%s\nafter %v\nknown %s as of %v (%d steps), removed %v, told %v", err, append(trace, what), podWords(c.k.pod), c.k.asOf.UnixNano(), c.stepsBy(c.k.asOf), c.k.removed, c.told)
		}
		e.explore(c, append(slices.Clip(trace), what))
	}
	if n := len(w.steps); n < len(w.life) {
		next(w.life[n], func(w *world) string {
			w.steps = append(w.steps, w.now)
			if w.events > 0 {
				w.events--
				w.queue = append(w.queue, n)
			}
			return ""
		})
	}
	if len(w.queue) > 0 {
		next("event "+w.life[w.queue[0]], (*world).deliver)
	}
	if w.lists > 0 || w.all.phase > 0 {
		next(fmt.Sprint("list ", w.all.phase), (*world).listAll)
	}
	if w.alone > 0 || w.one.phase > 0 {
		next(fmt.Sprint("alone ", w.one.phase), (*world).listAlone)
	}
}

// advance takes a list one phase further and reports whether it is answered.
func (w *world) advance(f *flight, left *int) bool {
	f.phase++
	switch f.phase {
	case 1:
		*left--
		f.began = w.now
	case 2:
		f.shows = len(w.steps)
	case 3:
		return true
	}
	return false
}

func (w *world) listAll() string {
	if !w.advance(&w.all, &w.lists) {
		return ""
	}
	f := w.all
	w.all = flight{}
	had := w.k.pod
	v := w.k.listAll(w.life.pod(f.shows), seen{moment(f.began), moment(f.began), moment(w.now)}, &w.removals)
	w.listedAt, w.listAnswered = f.began, w.now
	return w.check(had, v, f.shows)
}

func (w *world) listAlone() string {
	if !w.advance(&w.one, &w.alone) {
		return ""
	}
	f := w.one
	w.one = flight{}
	had := w.k.pod
	v := w.k.listAlone(w.life.pod(f.shows), seen{moment(f.began), moment(f.began), moment(w.now)}, moment(w.listAnswered), &w.removals)
	return w.check(had, v, f.shows)
}

// deliver brings the oldest event. It is dated when it was made, and what it shows by its
// newest step.
func (w *world) deliver() string {
	n := w.queue[0]
	w.queue = w.queue[1:]
	step := w.life[n]
	h := &pleg.Hint{Container: pleg.ContainerID(step[:1]), Removed: progress(step[1]) == gone, Pod: w.life.pod(n + 1)}
	if h.Pod == nil {
		h.Pod = &pleg.Pod{UID: "a"}
	}
	dated := moment(w.steps[n])
	if h.Removed {
		dated = time.Unix(0, 1)
		for c := range containers(h.Pod) {
			for i := range n {
				if w.life[i][:1] == string(c.ID) {
					dated = later(dated, moment(w.steps[i]))
				}
			}
		}
	}
	had := w.k.pod
	v, _ := w.k.event(h, seen{dated, moment(w.steps[n]), moment(w.now)}, &w.removals)
	return w.check(had, v, n+1)
}

// check returns the promise that an observation of the first n steps has broken. The record of
// a pod that is gone is dropped then.
func (w *world) check(had *pleg.Pod, v verdict, n int) string {
	defer func() {
		if w.k.pod == nil && w.k.removed == nil {
			w.k = known{listed: moment(w.listedAt), asOf: moment(w.listedAt)}
		}
	}()
	for _, ev := range events(had, w.k.pod, moment(w.now)) {
		is := map[pleg.EventType]int{pleg.ContainerStarted: runs, pleg.ContainerDied: hasEnded, pleg.ContainerRemoved: gone}[ev.Type]
		if is <= w.told[ev.ContainerID] {
			return fmt.Sprintf("%s of %s is told twice or out of order", ev.Type, ev.ContainerID)
		}
		w.told[ev.ContainerID] = is
	}
	now := w.life.after(len(w.steps))
	for id, is := range w.life.after(w.stepsBy(w.k.asOf)) {
		// One that is gone by now may have been gone when it was looked for.
		if have := w.has(id); have < is && (have != never || now[id] < gone) {
			return fmt.Sprintf("container %s is known as %d and claimed as of a time when it was %d", id, have, is)
		}
	}
	if v == outdated {
		n = 0 // a list that began after its answer has replaced it
	}
	listed := w.life.after(w.stepsBy(w.k.listed))
	for id, is := range w.life.after(n) {
		if v == disagreed && w.has(id) == never {
			continue // in doubt: the pod is listed again
		}
		if is < gone && w.has(id) < is && listed[id] < gone {
			return fmt.Sprintf("container %s was shown as %d and is lost", id, is)
		}
	}
	return ""
}

// has returns how far a container is known to be.
func (w *world) has(id pleg.ContainerID) int {
	if c := containerOf(w.k.pod, id); c != nil {
		return int(c.State - pleg.StateCreated)
	}
	if _, ok := w.k.removed[id]; ok {
		return gone
	}
	return w.told[id]
}

// requireTruth requires that one list which is answered in peace shows everything as it is.
func (e *explorer) requireTruth(w *world, trace []string) {
	for _, f := range []*flight{&w.all, &w.one} {
		*f = flight{}
	}
	w.lists = 1
	for range 3 {
		w.now++
		if err := w.listAll(); err != "" {
			e.t.Errorf("%s\nin peace after %v", err, trace)
		}
	}
	if want := w.life.pod(len(w.steps)); !same(w.k.pod, want) {
		e.t.Errorf("a list in peace leaves %s, want %s\nafter %v", podWords(w.k.pod), podWords(want), trace)
	}
}

func podWords(pod *pleg.Pod) string {
	words := ""
	for c := range containers(pod) {
		words += fmt.Sprintf("%s=%v ", c.ID, c.State)
	}
	return words
}

// Every interleaving of lists of all pods, lists of the pod alone and events over the lives
// of two containers, and over that of a pod whose UID comes back, keeps the promises:
// nothing that an observation showed is lost, nothing is reported twice or out of order, the
// cache never claims to be newer than what it shows, and one undisturbed list repairs everything.
func TestEveryOrderOfObservations(t *testing.T) {
	for name, tc := range map[string]struct {
		life                 life
		lists, alone, events int
	}{
		"lists":            {life{"cr", "dr", "cx", "cg"}, 2, 1, 0},
		"two singles":      {life{"cr", "cx", "cg"}, 1, 2, 0},
		"three lists":      {life{"cr", "cg", "dr"}, 3, 1, 0},
		"events":           {life{"cr", "cx", "cg", "dr"}, 1, 0, 4},
		"events and lists": {life{"cr", "cx", "cg"}, 1, 1, 3},
		"a UID comes back": {life{"cr", "cg", "dr"}, 2, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			e := &explorer{t: t, seen: make(map[string]struct{})}
			e.explore(&world{life: tc.life, lists: tc.lists, alone: tc.alone, events: tc.events, told: make(map[pleg.ContainerID]int)}, nil)
			t.Logf("%d states", len(e.seen))
		})
	}
}

// Without a list nothing is forgotten, but what is kept is bounded.
func TestRemovalsAreBounded(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(1_700_000_000, int64(n)) }
	var all removals
	for n := range 10 * maxRemoved {
		var k known
		k.remove("c", removal{at: at(n), byEvent: true}, &all)
		if len(k.removed) == 0 && k.listed.Before(at(n)) {
			t.Fatalf("removal %d is neither remembered nor a reason to doubt what is older", n)
		}
	}
	if all.count != 2*maxRemoved {
		t.Errorf("%d removals are remembered, want %d", all.count, 2*maxRemoved)
	}
}

// A pod has the labels of its newest sandbox, whichever sandbox an event is about.
func TestMergeKeepsTheLabelsOfTheNewestSandbox(t *testing.T) {
	pod := func(label string, sandboxes ...int) *pleg.Pod {
		p := &pleg.Pod{UID: "web/a", Labels: map[string]string{"version": label}}
		for _, n := range sandboxes {
			p.Sandboxes = append(p.Sandboxes, &pleg.Container{ID: pleg.ContainerID(fmt.Sprint(n)), CreatedAt: moment(n), State: pleg.StateRunning})
		}
		return p
	}
	for name, tc := range map[string]struct {
		have, event *pleg.Pod
		want        string
	}{
		"the older sandbox":  {pod("new", 2, 1), pod("old", 1), "new"},
		"the newest sandbox": {pod("old", 2, 1), pod("new", 2), "new"},
		"a newer sandbox":    {pod("old", 1), pod("new", 2), "new"},
		"no sandbox left":    {pod("new", 1), pod("", []int{}...), "new"},
		"the first sandbox":  {nil, pod("new", 1), "new"},
	} {
		k := known{pod: tc.have}
		k.event(&pleg.Hint{UID: "web/a", Pod: tc.event}, seen{}, &removals{})
		if got := k.pod.Labels["version"]; got != tc.want {
			t.Errorf("%s: label %q, want %q", name, got, tc.want)
		}
	}
}
