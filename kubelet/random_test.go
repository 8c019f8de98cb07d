package kubelet_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// randomPods is the number of pods. It is small, so that each changes often.
const randomPods = 5

var (
	errInspect = errors.New("inspection fails")
	errList    = errors.New("list fails")
)

var states = []string{"running", "exited", "created", "unknown"}

// random changes two runtimes in the same random way. A container may also start
// again or come back, which no real runtime allows.
type random struct {
	rand     *rand.Rand
	runtimes []*fakeRuntime
	// pods has the words of [fakeRuntime.set] for each pod.
	pods    map[types.UID][]string
	broken  map[types.UID]bool
	failing bool
	// absent are removed pods that must not come back yet.
	absent map[types.UID]bool
}

func newRandom(seed uint64, runtimes ...*fakeRuntime) *random {
	return &random{
		rand: rand.New(rand.NewPCG(seed, 0)), runtimes: runtimes, pods: make(map[types.UID][]string),
		broken: make(map[types.UID]bool), absent: make(map[types.UID]bool),
	}
}

func (w *random) uids() []types.UID {
	uids := make([]types.UID, randomPods)
	for i := range uids {
		uids[i] = types.UID(fmt.Sprint(i))
	}
	return uids
}

func (w *random) anyPod() types.UID { return w.uids()[w.rand.IntN(randomPods)] }

// each calls do with both runtimes.
func (w *random) each(do func(*fakeRuntime)) {
	for _, r := range w.runtimes {
		do(r)
	}
}

// mutate makes one change and returns its description.
func (w *random) mutate() string {
	uid := w.anyPod()
	switch w.rand.IntN(12) {
	case 0:
		w.broken[uid] = !w.broken[uid]
		var err error
		if w.broken[uid] {
			err = errInspect
		}
		w.each(func(r *fakeRuntime) { r.disturb(uid, func(f *podFault) { f.err = err }) })
		return fmt.Sprintf("pod %s broken %v", uid, w.broken[uid])
	case 1:
		return w.failLists(w.rand.IntN(2) == 0)
	case 2:
		stripped := w.rand.IntN(2) == 0
		w.each(func(r *fakeRuntime) { r.disturb(uid, func(f *podFault) { f.addressless = stripped }) })
		return fmt.Sprintf("pod %s without address %v", uid, stripped)
	case 3:
		return w.put(uid, nil)
	default:
		return w.put(uid, w.change(slices.Clone(w.pods[uid])))
	}
}

func (w *random) failLists(failing bool) string {
	w.failing = failing
	var err error
	if failing {
		err = errList
	}
	w.each(func(r *fakeRuntime) { r.fail(err) })
	return fmt.Sprintf("lists failing %v", failing)
}

func (w *random) put(uid types.UID, words []string) string {
	if w.absent[uid] && len(w.pods[uid]) == 0 {
		return fmt.Sprintf("pod %s stays absent", uid)
	}
	w.pods[uid] = words
	text := strings.Join(words, " ")
	w.each(func(r *fakeRuntime) { r.set(uid, text) })
	return fmt.Sprintf("pod %s is %q", uid, text)
}

// change adds, removes, changes or moves containers and sandboxes.
func (w *random) change(words []string) []string {
	for range 1 + w.rand.IntN(3) {
		if len(words) == 0 || w.rand.IntN(3) == 0 {
			words = w.add(words)
			continue
		}
		i := w.rand.IntN(len(words))
		switch w.rand.IntN(4) {
		case 0:
			words = slices.Delete(words, i, i+1)
		case 1:
			words[0], words[i] = words[i], words[0]
		default:
			id, _, _ := strings.Cut(words[i], "=")
			words[i] = id + "=" + w.state()
		}
	}
	return words
}

func (w *random) add(words []string) []string {
	id := fmt.Sprintf("c%d", w.rand.IntN(4))
	if w.rand.IntN(3) == 0 {
		id = fmt.Sprintf("/s%d", w.rand.IntN(2))
	}
	if slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(word, id+"=") }) {
		return words
	}
	return append([]string{id + "=" + w.state()}, words...)
}

// state returns running or exited most of the time.
func (w *random) state() string {
	if w.rand.IntN(4) > 0 {
		return states[w.rand.IntN(2)]
	}
	return states[w.rand.IntN(len(states))]
}
