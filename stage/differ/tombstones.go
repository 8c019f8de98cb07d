package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// removedFor is how long a removed container is ignored although a list has it.
// containerd lists a sandbox for up to 4 ms after its last event.
const removedFor = 10 * time.Second

// tombstones remembers what is gone, because a list that began earlier, or a
// runtime that is a moment late, may still show it.
type tombstones struct {
	// containers were removed according to a CRI event.
	containers *recent[pleg.ContainerID]
	// pods were found gone by something newer than the last listing. If there are too
	// many, they are forgotten, and cleared is the newest of their times.
	pods    map[pleg.PodUID]grave
	cleared grave
}

// maxGraves bounds the pods that were found gone while lists fail.
const maxGraves = 2 * maxRecent

// grave has the times of the observation that found a pod gone.
type grave struct{ at, asOf time.Time }

func newTombstones() tombstones {
	return tombstones{
		containers: newRecent[pleg.ContainerID](removedFor, maxRecent),
		pods:       make(map[pleg.PodUID]grave),
	}
}

// buryPod notes when a pod was found gone. It reports whether there are so many
// that a listing, which clears them, should come soon.
func (t *tombstones) buryPod(uid pleg.PodUID, g grave) (tooMany bool) {
	t.pods[uid] = g
	if len(t.pods) <= maxGraves {
		return len(t.pods) >= maxRecent
	}
	for _, g := range t.pods {
		if g.at.After(t.cleared.at) {
			t.cleared = g
		}
	}
	clear(t.pods)
	return true
}

// grave returns when a pod without a record was found gone, as far as that is known.
func (t *tombstones) grave(uid pleg.PodUID) grave {
	if g, ok := t.pods[uid]; ok {
		return g
	}
	return t.cleared
}

// listed forgets the pods whose absence a listing of this time covers.
func (t *tombstones) listed(at time.Time) {
	for uid, gone := range t.pods {
		if !gone.at.After(at) {
			delete(t.pods, uid)
		}
	}
}

// without returns the pod without its removed containers; nil if none is left.
func (t *tombstones) without(pod *pleg.Pod, now time.Time) *pleg.Pod {
	if t.containers.empty() || pod == nil {
		return pod
	}
	removed := func(c *pleg.Container) bool { return t.containers.has(c.ID, now) }
	if !slices.ContainsFunc(pod.Containers, removed) && !slices.ContainsFunc(pod.Sandboxes, removed) {
		return pod
	}
	rest := *pod
	rest.Containers = slices.DeleteFunc(slices.Clone(pod.Containers), removed)
	rest.Sandboxes = slices.DeleteFunc(slices.Clone(pod.Sandboxes), removed)
	if len(rest.Containers) == 0 && len(rest.Sandboxes) == 0 {
		return nil
	}
	return &rest
}
