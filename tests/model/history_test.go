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

// newHistory returns the history of a seed. All times are random nanoseconds, so
// that no two things happen at once.
func newHistory(seed uint64) *history {
	rng := rand.New(rand.NewPCG(seed, 2))
	h := &history{
		seed:     seed,
		pods:     make(map[pleg.PodUID][]version),
		requests: make(map[pleg.PodUID][]time.Duration),
		relists:  make(map[pleg.PodUID][]time.Duration),
		waits:    make(map[pleg.PodUID][]time.Duration),
	}
	for _, uid := range kit.UIDs(2 + rng.IntN(7)) {
		h.pods[uid] = newLife(rng, uid)
		h.requests[uid] = randomTimes(rng, 4)
		h.relists[uid] = randomTimes(rng, 4)
		h.waits[uid] = randomTimes(rng, 6)
	}
	return h
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

func newLife(rng *rand.Rand, uid pleg.PodUID) []version {
	life := []version{{}}
	l := &growingPod{rng: rng, uid: uid}
	for _, at := range randomTimes(rng, 13) {
		l.step()
		life = append(life, version{from: at, containers: slices.Clone(l.containers), sandboxes: slices.Clone(l.sandboxes)})
	}
	return life
}

// growingPod is a pod that gets new containers and sandboxes, the newest first.
type growingPod struct {
	rng        *rand.Rand
	uid        pleg.PodUID
	containers []pleg.Container
	sandboxes  []pleg.Container
	ids        int
}

func (l *growingPod) add(list *[]pleg.Container, name string, attempt uint32, state pleg.State) {
	id := pleg.ContainerID(fmt.Sprintf("%s-%d", l.uid, l.ids))
	l.ids++
	*list = slices.Insert(*list, 0, pleg.Container{ID: id, Name: name, Attempt: attempt, State: state})
}

// step makes the next version of a pod.
func (l *growingPod) step() {
	roll := l.rng.IntN(10)
	switch {
	case len(l.sandboxes) == 0:
		l.add(&l.sandboxes, "pod", 0, pleg.StateRunning)
		for i := range 1 + l.rng.IntN(2) {
			l.add(&l.containers, fmt.Sprintf("c%d", i), 0, pleg.StateCreated)
		}
	case roll < 1:
		l.containers, l.sandboxes = nil, nil
	case roll < 2:
		l.sandboxes[0].State = pleg.StateExited
	case roll < 3 && l.sandboxes[0].State == pleg.StateExited:
		l.add(&l.sandboxes, "pod", uint32(len(l.sandboxes)), pleg.StateRunning)
	case roll < 4 || len(l.containers) == 0:
		l.add(&l.containers, fmt.Sprintf("c%d", l.ids), 0, pleg.StateRunning)
	default:
		l.stepContainer(roll, l.rng.IntN(len(l.containers)))
	}
}

func (l *growingPod) stepContainer(roll, i int) {
	c := &l.containers[i]
	switch {
	case roll < 6 && c.State != pleg.StateExited:
		c.State = pleg.StateExited
		l.add(&l.containers, c.Name, c.Attempt+1, pleg.StateRunning)
	case c.State == pleg.StateCreated:
		c.State = pleg.StateRunning
	case c.State == pleg.StateRunning:
		c.State = pleg.StateExited
	default:
		l.containers = slices.Delete(l.containers, i, i+1)
	}
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
