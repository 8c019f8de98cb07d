package kubelet_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// worldPods is the number of pods of a world: few, so that much happens to each.
const worldPods = 5

var (
	errInspect = errors.New("the inspection fails")
	errList    = errors.New("the list fails")
)

var states = []string{"running", "exited", "created", "unknown"}

// world is what two nodes have alike. It changes at random, and also in ways
// that no runtime knows: containers that run again or come back.
type world struct {
	rand  *rand.Rand
	nodes []*node
	// pods has the words of each pod, newest first.
	pods    map[types.UID][]string
	broken  map[types.UID]bool
	failing bool
	// frozen are pods that must not come back yet.
	frozen map[types.UID]bool
}

func newWorld(seed uint64, nodes ...*node) *world {
	return &world{
		rand: rand.New(rand.NewPCG(seed, 0)), nodes: nodes, pods: make(map[types.UID][]string),
		broken: make(map[types.UID]bool), frozen: make(map[types.UID]bool),
	}
}

func (w *world) uids() []types.UID {
	uids := make([]types.UID, worldPods)
	for i := range uids {
		uids[i] = types.UID(fmt.Sprint(i))
	}
	return uids
}

func (w *world) anyPod() types.UID { return w.uids()[w.rand.IntN(worldPods)] }

// each does the same to both nodes.
func (w *world) each(do func(*node)) {
	for _, n := range w.nodes {
		do(n)
	}
}

// mutate changes one thing, and returns what.
func (w *world) mutate() string {
	uid := w.anyPod()
	switch w.rand.IntN(12) {
	case 0:
		w.broken[uid] = !w.broken[uid]
		var err error
		if w.broken[uid] {
			err = errInspect
		}
		w.each(func(n *node) { n.breakPod(uid, err) })
		return fmt.Sprintf("pod %s broken %v", uid, w.broken[uid])
	case 1:
		return w.failLists(w.rand.IntN(2) == 0)
	case 2:
		stripped := w.rand.IntN(2) == 0
		w.each(func(n *node) { n.strip(uid, stripped) })
		return fmt.Sprintf("pod %s without address %v", uid, stripped)
	case 3:
		return w.put(uid, nil)
	default:
		return w.put(uid, w.change(slices.Clone(w.pods[uid])))
	}
}

func (w *world) failLists(failing bool) string {
	w.failing = failing
	var err error
	if failing {
		err = errList
	}
	w.each(func(n *node) { n.fail(err) })
	return fmt.Sprintf("lists failing %v", failing)
}

func (w *world) put(uid types.UID, words []string) string {
	if w.frozen[uid] && len(w.pods[uid]) == 0 {
		return fmt.Sprintf("pod %s stays away", uid)
	}
	w.pods[uid] = words
	text := strings.Join(words, " ")
	w.each(func(n *node) { n.set(uid, text) })
	return fmt.Sprintf("pod %s is %q", uid, text)
}

// change adds, removes, changes or moves containers and sandboxes.
func (w *world) change(words []string) []string {
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

func (w *world) add(words []string) []string {
	id := fmt.Sprintf("c%d", w.rand.IntN(4))
	if w.rand.IntN(3) == 0 {
		id = fmt.Sprintf("/s%d", w.rand.IntN(2))
	}
	if slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(word, id+"=") }) {
		return words
	}
	return append([]string{id + "=" + w.state()}, words...)
}

// state is running or exited most of the time.
func (w *world) state() string {
	if w.rand.IntN(4) > 0 {
		return states[w.rand.IntN(2)]
	}
	return states[w.rand.IntN(len(states))]
}
