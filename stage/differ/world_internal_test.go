package differ

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// A life is the sequence of what happens to the containers of a pod, one step after the
// other. In the words of a step a later letter of rxg (runs, exited, gone) is further.
type life []string

// progress is how far a container is: 0 if it does not exist yet.
func progress(word byte) int { return 1 + slices.Index([]byte("rxg"), word) }

const (
	never    = 0
	runs     = 1
	hasEnded = 2
	gone     = 3
)

// after returns how far each container is after the first n steps.
func (l life) after(n int) map[pleg.ContainerID]int {
	at := make(map[pleg.ContainerID]int)
	for _, step := range l[:n] {
		at[pleg.ContainerID(step[:1])] = progress(step[1])
	}
	return at
}

// pod returns the pod as the runtime has it after the first n steps; nil if it is gone.
func (l life) pod(n int) *pleg.Pod {
	pod := &pleg.Pod{UID: "a"}
	at := l.after(n)
	for _, id := range slices.Sorted(maps.Keys(at)) {
		if p := at[id]; p < gone {
			pod.Containers = append(pod.Containers, &pleg.Container{ID: id, State: pleg.StateCreated + pleg.State(p)})
		}
	}
	if len(pod.Containers) == 0 {
		return nil
	}
	return pod
}

// flight is a list under way.
type flight struct{ phase, began, shows int }

// world is a runtime and what the differ knows of its only pod, at one point of one
// interleaving. Times are numbers of actions.
type world struct {
	life  life
	now   int
	steps []int // when each step happened
	// lists and alone are the lists that may still begin, events those that may still come.
	lists, alone           int
	all, one               flight
	events                 int
	queue                  []int // the steps whose events are under way
	k                      known
	removals               removals
	listedAt, listAnswered int
	told                   map[pleg.ContainerID]int
}

func moment(n int) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(n)*1000) // the nanoseconds that order adds do not matter
}

func (w world) clone() *world {
	w.steps, w.queue = slices.Clone(w.steps), slices.Clone(w.queue)
	w.k.removed, w.told = maps.Clone(w.k.removed), maps.Clone(w.told)
	w.now++
	return &w
}

// stepsBy returns the number of steps that had happened at a time.
func (w *world) stepsBy(t time.Time) int {
	n := 0
	for n < len(w.steps) && !moment(w.steps[n]).After(t) {
		n++
	}
	return n
}

// key is the same for worlds that go on in the same way: only the order of times matters.
func (w *world) key() string {
	times := []time.Time{w.k.listed, w.k.answered, w.k.heard, w.k.asOf.Truncate(1000), moment(w.all.began), moment(w.one.began), moment(w.listedAt), moment(w.listAnswered)}
	for _, s := range w.steps {
		times = append(times, moment(s))
	}
	ids := slices.Sorted(maps.Keys(w.k.removed))
	for _, id := range ids {
		times = append(times, w.k.removed[id].at)
	}
	sorted := slices.Clone(times)
	slices.SortFunc(sorted, time.Time.Compare)
	sorted = slices.Compact(sorted)
	key := fmt.Appendf(nil, "%d%d%d%v%d%d%d%d|", w.lists, w.alone, w.events, w.queue, w.all.phase, w.all.shows, w.one.phase, w.one.shows)
	for _, t := range times {
		i, _ := slices.BinarySearchFunc(sorted, t, time.Time.Compare)
		key = append(key, byte('a'+i))
	}
	for _, id := range ids {
		key = fmt.Appendf(key, "%s%v", id, w.k.removed[id].byEvent)
	}
	key = fmt.Append(key, w.k.asOf.Nanosecond()%1000 > 0, "|")
	for c := range containers(w.k.pod) {
		key = fmt.Appendf(key, "%s%d", c.ID, c.State)
	}
	for _, id := range slices.Sorted(maps.Keys(w.told)) {
		key = fmt.Appendf(key, "%s%d", id, w.told[id])
	}
	return string(key)
}
