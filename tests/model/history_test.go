package model_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Times since the start of a history.
const (
	calmAfter   = 12 * time.Second // no pod changes after that
	faultsUntil = 15 * time.Second // no new call fails or takes long after that
	historyEnd  = 35 * time.Second // everything has settled
)

// history is the whole life of all pods, known in advance, so that the answers of a
// runtime depend only on the time.
type history struct {
	seed uint64
	pods map[pleg.PodUID][]version
	// requests, relists and waits are the times of reinspection requests, of
	// relist requests and of GetNewerThan calls.
	requests map[pleg.PodUID][]time.Duration
	relists  map[pleg.PodUID][]time.Duration
	waits    map[pleg.PodUID][]time.Duration
}

// version is what a pod has from one time until the next version. A container goes from created to running to exited
// to removed, and its id is not used again.
type version struct {
	from       time.Duration
	containers []pleg.Container // the newest first; with the sandboxes empty: gone
	sandboxes  []pleg.Container
}

func (v version) gone() bool { return len(v.containers)+len(v.sandboxes) == 0 }

// newHistory returns the history of a seed and all steps in it, one after the other: no two
// things happen at once.
func newHistory(seed uint64) (*history, []lifeEvent) {
	rng := rand.New(rand.NewPCG(seed, 2))
	h := &history{
		seed:     seed,
		pods:     make(map[pleg.PodUID][]version),
		requests: make(map[pleg.PodUID][]time.Duration),
		relists:  make(map[pleg.PodUID][]time.Duration),
		waits:    make(map[pleg.PodUID][]time.Duration),
	}
	var all []lifeEvent
	for _, uid := range kit.UIDs(2 + rng.IntN(7)) {
		l := &growingPod{rng: rng, uid: uid, life: []version{{}}}
		for _, at := range randomTimes(rng, 13) {
			l.now.from = max(at, l.now.from+1)
			l.step()
		}
		h.pods[uid] = l.life
		all = append(all, l.events...)
		h.requests[uid] = randomTimes(rng, 4)
		h.relists[uid] = randomTimes(rng, 4)
		h.waits[uid] = randomTimes(rng, 6)
	}
	return h, all
}

// randomTimes returns fewer than n times.
func randomTimes(rng *rand.Rand, n int) []time.Duration {
	times := make([]time.Duration, rng.IntN(n))
	for i := range times {
		times[i] = time.Duration(rng.Int64N(int64(calmAfter)))
	}
	slices.Sort(times)
	return times
}

// lifeEvent is one step of one container or sandbox, which a CRI event announces.
type lifeEvent struct {
	at                 time.Duration
	uid                pleg.PodUID
	container, sandbox pleg.ContainerID
	state              pleg.State
	removed            bool
}

// growingPod is a pod that gets new containers and sandboxes, the newest first.
type growingPod struct {
	rng    *rand.Rand
	uid    pleg.PodUID
	now    version // from the time of the next step
	ids    int
	life   []version
	events []lifeEvent
}

// step changes a pod as a runtime does.
func (l *growingPod) step() {
	roll := l.rng.IntN(10)
	now := &l.now
	switch {
	case len(now.sandboxes) == 0:
		l.add(&now.sandboxes, "pod", 0, pleg.StateRunning)
		for i := range 1 + l.rng.IntN(2) {
			l.add(&now.containers, fmt.Sprintf("c%d", i), 0, pleg.StateCreated)
		}
	case roll < 1:
		l.removePod()
	case roll < 2:
		l.set(now.sandboxes[0].ID, pleg.StateExited)
	case roll < 3 && now.sandboxes[0].State == pleg.StateExited:
		l.add(&now.sandboxes, "pod", uint32(len(now.sandboxes)), pleg.StateRunning)
	case roll < 4 || len(now.containers) == 0:
		l.start(fmt.Sprintf("c%d", l.ids), 0)
	default:
		l.stepContainer(roll, now.containers[l.rng.IntN(len(now.containers))])
	}
}

func (l *growingPod) stepContainer(roll int, c pleg.Container) {
	switch {
	case roll < 6 && c.State != pleg.StateExited:
		l.set(c.ID, pleg.StateExited)
		l.start(c.Name, c.Attempt+1)
	case c.State == pleg.StateCreated:
		l.set(c.ID, pleg.StateRunning)
	case c.State == pleg.StateRunning:
		l.set(c.ID, pleg.StateExited)
	default:
		l.remove(c.ID)
	}
}

// removePod ends everything, and then removes it.
func (l *growingPod) removePod() {
	all := slices.Concat(l.now.containers, l.now.sandboxes)
	for _, c := range all {
		if c.State != pleg.StateCreated {
			l.set(c.ID, pleg.StateExited)
		}
	}
	for _, c := range all {
		l.remove(c.ID)
	}
}

// start creates and starts a container.
func (l *growingPod) start(name string, attempt uint32) {
	l.add(&l.now.containers, name, attempt, pleg.StateCreated)
	l.set(l.now.containers[0].ID, pleg.StateRunning)
}

func (l *growingPod) add(list *[]pleg.Container, name string, attempt uint32, state pleg.State) {
	c := pleg.Container{
		ID: pleg.ContainerID(fmt.Sprintf("%s-%d", l.uid, l.ids)), Name: name, Attempt: attempt, State: state,
		CreatedAt: time.Unix(0, int64(l.now.from)),
	}
	l.ids++
	if list == &l.now.containers {
		c.SandboxID = l.now.sandboxes[0].ID
	}
	*list = slices.Insert(slices.Clone(*list), 0, c)
	l.record(c, false)
}

// set sets the state of a container or sandbox, unless it has it already.
func (l *growingPod) set(id pleg.ContainerID, state pleg.State) {
	l.now.containers, l.now.sandboxes = slices.Clone(l.now.containers), slices.Clone(l.now.sandboxes)
	c := in(l.now.containers, id)
	if c == nil {
		c = in(l.now.sandboxes, id)
	}
	if c.State != state {
		c.State = state
		l.record(*c, false)
	}
}

func (l *growingPod) remove(id pleg.ContainerID) {
	for _, list := range []*[]pleg.Container{&l.now.containers, &l.now.sandboxes} {
		if c := in(*list, id); c != nil {
			gone := *c
			*list = slices.DeleteFunc(slices.Clone(*list), func(c pleg.Container) bool { return c.ID == id })
			l.record(gone, true)
			return
		}
	}
}

func in(list []pleg.Container, id pleg.ContainerID) *pleg.Container {
	i := slices.IndexFunc(list, func(c pleg.Container) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// record adds the step to the life of the pod. The next step comes a nanosecond later.
func (l *growingPod) record(c pleg.Container, removed bool) {
	l.life = append(l.life, l.now)
	e := lifeEvent{at: l.now.from, uid: l.uid, container: c.ID, sandbox: cmp.Or(c.SandboxID, c.ID), state: c.State, removed: removed}
	if removed {
		e.state = pleg.StateExited // as events say
	}
	l.events = append(l.events, e)
	l.now.from++
}

func (h *history) uids() []pleg.PodUID {
	return slices.SortedFunc(maps.Keys(h.pods), cmp.Compare[pleg.PodUID])
}

// at returns the pod at a time.
func (h *history) at(uid pleg.PodUID, t time.Duration) version {
	life := h.pods[uid]
	i := len(life) - 1
	for life[i].from > t {
		i--
	}
	return life[i]
}

// list returns every pod that exists at a time.
func (h *history) list(t time.Duration) []*pleg.Pod {
	var pods []*pleg.Pod
	for _, uid := range h.uids() {
		if v := h.at(uid, t); !v.gone() {
			pods = append(pods, newPod(uid, v.containers, v.sandboxes))
		}
	}
	return pods
}

// inspect returns the status of those ids of the pod that exist at a time.
func (h *history) inspect(pod *pleg.Pod, t time.Duration) *pleg.PodStatus {
	now := h.at(pod.UID, t)
	status := &pleg.PodStatus{UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
	for _, listed := range pod.Containers {
		for _, c := range now.containers {
			if c.ID == listed.ID {
				status.Containers = append(status.Containers, containerStatus(&c, c.State, int32(len(c.ID))))
			}
		}
	}
	for _, listed := range pod.Sandboxes {
		for _, s := range now.sandboxes {
			if s.ID != listed.ID {
				continue
			}
			ready := s.State == pleg.StateRunning
			status.Sandboxes = append(status.Sandboxes, &pleg.SandboxStatus{ID: s.ID, Attempt: s.Attempt, Ready: ready})
			if ready {
				status.IPs = []string{"10.0.0.1", string(s.ID)}
			}
		}
	}
	return status
}
