package cri

import (
	"cmp"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// joiner joins sandboxes and containers to pods. It keeps the pods of the last list
// and returns the same pointers for those that did not change.
type joiner struct {
	groups     map[pleg.PodUID]*group
	bySandbox  map[pleg.ContainerID]*group
	generation uint64
	homeless   []*item // containers of the last list that belong to no pod
	// unlabelled are the pods of the last list that have a sandbox or container
	// without the kubelet's label. Each list has a new map, nil if there are none.
	unlabelled map[pleg.PodUID]struct{}
}

// group is a pod and its items in the current list.
type group struct {
	uid        pleg.PodUID
	generation uint64
	sandboxes  []*item
	containers []*item
	pod        *pleg.Pod // as last returned
}

func newJoiner() *joiner {
	return &joiner{
		groups:    make(map[pleg.PodUID]*group),
		bySandbox: make(map[pleg.ContainerID]*group),
	}
}

// join returns the pods of one list, in no order. Sandboxes with the same pod UID
// are one pod. A container belongs to the pod of its sandbox, or, if that sandbox is
// not listed, to the pod in the kubelet's labels.
func (j *joiner) join(sandboxes, containers []*item) []*pleg.Pod {
	j.generation++
	clear(j.bySandbox)
	j.homeless, j.unlabelled = nil, nil
	for _, s := range sandboxes {
		j.checkLabel(s.podUID, pleg.PodUID(s.labels[labelPodUID]))
		g := j.group(s.podUID)
		g.sandboxes = append(g.sandboxes, s)
		j.bySandbox[s.ID] = g
	}
	for _, c := range containers {
		g := j.bySandbox[c.SandboxID]
		if g != nil {
			j.checkLabel(g.uid, c.podUID)
		}
		if g == nil && c.podUID != "" {
			g = j.group(c.podUID)
		}
		if g == nil {
			j.homeless = append(j.homeless, c)
			continue
		}
		g.containers = append(g.containers, c)
	}

	pods := make([]*pleg.Pod, 0, len(j.groups))
	for uid, g := range j.groups {
		if g.generation != j.generation {
			delete(j.groups, uid)
			continue
		}
		pods = append(pods, g.build())
	}
	return pods
}

// checkLabel records a pod that has an item with another pod's label or without one.
// It records the other pod too, because its label finds an item that is not its own.
func (j *joiner) checkLabel(uid, label pleg.PodUID) {
	if label == uid {
		return
	}
	if j.unlabelled == nil {
		j.unlabelled = make(map[pleg.PodUID]struct{})
	}
	j.unlabelled[uid], j.unlabelled[label] = struct{}{}, struct{}{}
}

// group returns the group of a pod. The first call of a list empties it.
func (j *joiner) group(uid pleg.PodUID) *group {
	g := j.groups[uid]
	if g == nil {
		g = &group{uid: uid}
		j.groups[uid] = g
	}
	if g.generation != j.generation {
		g.generation = j.generation
		clear(g.sandboxes)
		clear(g.containers)
		g.sandboxes, g.containers = g.sandboxes[:0], g.containers[:0]
	}
	return g
}

// build returns the pod of the last list if no item changed: equal pointers mean
// equal items, and a pod's name and labels come from its items.
func (g *group) build() *pleg.Pod {
	slices.SortFunc(g.sandboxes, newestFirst)
	slices.SortFunc(g.containers, newestFirst)
	if g.pod != nil && sameItems(g.pod.Sandboxes, g.sandboxes) && sameItems(g.pod.Containers, g.containers) {
		return g.pod
	}
	newest := slices.Concat(g.sandboxes, g.containers)[0]
	g.pod = &pleg.Pod{
		UID:        g.uid,
		Name:       newest.podName,
		Namespace:  newest.podNamespace,
		Labels:     newest.labels,
		Containers: listed(g.containers),
		Sandboxes:  listed(g.sandboxes),
	}
	return g.pod
}

// newestFirst orders by creation. Items created at the same time are ordered by id,
// so that their order is the same in every list.
func newestFirst(a, b *item) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
}

func sameItems(last []*pleg.Container, now []*item) bool {
	return slices.EqualFunc(last, now, func(c *pleg.Container, it *item) bool { return c == it.Container })
}

func listed(items []*item) []*pleg.Container {
	containers := make([]*pleg.Container, len(items))
	for i, it := range items {
		containers[i] = it.Container
	}
	return containers
}
