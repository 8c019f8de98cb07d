package cri

import (
	"cmp"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// joiner joins sandboxes and containers to pods. It keeps the pods of the last list and returns the
// same pointers for pods that did not change.
type joiner struct {
	// unlisted returns a sandbox that is known but not listed, or nil.
	unlisted   func(pleg.ContainerID) *item
	groups     map[podKey]*group
	byUID      map[pleg.PodUID]*group // by the UID under which the pod is listed
	bySandbox  map[pleg.ContainerID]*group
	generation uint64

	// Each list resets the fields below.

	homeless []*item // containers that belong to no pod
	// orphans are the containers whose sandbox is not listed.
	orphans []*item
	// unlabelled are the pods with a sandbox or container without the kubelet's label.
	unlabelled map[pleg.PodUID]struct{}
	// renamed contains an item of each pod that is listed under another UID than its own.
	renamed []*item
}

// podKey tells pods apart. A UID alone does not: everybody copies the one in crictl's
// documentation.
type podKey struct {
	uid             pleg.PodUID
	namespace, name string
}

// group is a pod and its items in the current list.
type group struct {
	key        podKey
	uid        pleg.PodUID // under which the pod is listed
	generation uint64
	sandboxes  []*item
	containers []*item
	pod        *pleg.Pod // as last returned
}

func newJoiner(unlisted func(pleg.ContainerID) *item) *joiner {
	return &joiner{
		unlisted:  unlisted,
		groups:    make(map[podKey]*group),
		byUID:     make(map[pleg.PodUID]*group),
		bySandbox: make(map[pleg.ContainerID]*group),
	}
}

// join returns the pods of one list, in no order. Sandboxes with the same pod UID, namespace and
// name are one pod. A container belongs to the pod of its sandbox, or, if nothing is known of that
// sandbox, to the pod in the kubelet's labels. Of pods that share a UID, the pod that was listed
// before keeps it, or else the pod with the oldest sandbox.
func (j *joiner) join(sandboxes, containers []*item) []*pleg.Pod {
	j.generation++
	clear(j.bySandbox)
	j.homeless, j.orphans, j.unlabelled, j.renamed = nil, nil, make(map[pleg.PodUID]struct{}), nil
	for _, s := range sandboxes {
		j.bySandbox[s.ID] = nil
	}
	ofPods := slices.Clone(sandboxes) // and the containers without a listed sandbox
	for _, c := range containers {
		if _, listed := j.bySandbox[c.SandboxID]; listed {
			continue
		}
		if c = j.complete(c); c.podUID == "" {
			j.homeless = append(j.homeless, c)
			continue
		}
		ofPods = append(ofPods, c)
	}
	for _, it := range j.listedFirst(ofPods) {
		j.add(j.groupOrNew(it), it)
	}
	for _, c := range containers {
		if g := j.bySandbox[c.SandboxID]; g != nil {
			j.add(g, c)
		}
	}
	return j.pods()
}

// listedFirst sorts the items of pods that were listed before to the front: a new pod must not
// take their UID.
func (j *joiner) listedFirst(items []*item) []*item {
	var listed, fresh []*item
	for _, it := range items {
		if j.find(it) != nil {
			listed = append(listed, it)
		} else {
			fresh = append(fresh, it)
		}
	}
	slices.SortFunc(fresh, func(a, b *item) int { return newestFirst(b, a) })
	return append(listed, fresh...)
}

func (j *joiner) pods() []*pleg.Pod {
	pods := make([]*pleg.Pod, 0, len(j.groups))
	for key, g := range j.groups {
		if g.generation != j.generation {
			delete(j.groups, key)
			if j.byUID[g.uid] == g {
				delete(j.byUID, g.uid)
			}
			continue
		}
		pods = append(pods, g.build())
		if g.uid != key.uid {
			j.renamed = append(j.renamed, g.newest())
		}
	}
	return pods
}

// complete returns a container whose sandbox is not listed, with the known data of that sandbox.
func (j *joiner) complete(c *item) *item {
	j.orphans = append(j.orphans, c)
	s := j.unlisted(c.SandboxID)
	if s == nil {
		return c
	}
	completed := *c
	completed.podUID, completed.podName, completed.podNamespace, completed.labels = s.podUID, s.podName, s.podNamespace, s.labels
	return &completed
}

func (j *joiner) add(g *group, it *item) {
	if it.label != g.uid {
		j.unlabelled[g.uid] = struct{}{}
	}
	if it.sandbox {
		j.bySandbox[it.ID] = g
		g.sandboxes = append(g.sandboxes, it)
		return
	}
	g.containers = append(g.containers, it)
}

// find returns the group of the pod of an item, or nil if the pod is new. An item without the
// name of its pod belongs to the pod with the UID.
func (j *joiner) find(it *item) *group {
	g := j.groups[it.key()]
	if g == nil && it.podName == "" && it.podNamespace == "" {
		g = j.byUID[it.podUID]
	}
	return g
}

// groupOrNew returns the group of the pod of an item. The first call of a list empties it.
func (j *joiner) groupOrNew(it *item) *group {
	g := j.find(it)
	switch {
	case g == nil:
		g = &group{key: it.key(), uid: it.podUID}
		for taken := j.byUID[g.uid]; taken != nil && taken.generation == j.generation; taken = j.byUID[g.uid] {
			g.uid += pleg.PodUID("@" + it.podNamespace + "." + it.podName)
		}
		j.groups[g.key], j.byUID[g.uid] = g, g
	case g.generation == j.generation:
		return g
	}
	g.generation = j.generation
	clear(g.sandboxes)
	clear(g.containers)
	g.sandboxes, g.containers = g.sandboxes[:0], g.containers[:0]
	return g
}

// build returns the pod of the last list if no item changed: equal pointers mean equal items.
// The labels of a pod without a listed sandbox may become known later.
func (g *group) build() *pleg.Pod {
	slices.SortFunc(g.sandboxes, newestFirst)
	slices.SortFunc(g.containers, newestFirst)
	newest := g.newest()
	if g.pod != nil && sameItems(g.pod.Sandboxes, g.sandboxes) && sameItems(g.pod.Containers, g.containers) &&
		(g.pod.Labels == nil) == (newest.labels == nil) {
		return g.pod
	}
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

// newest returns the item with the pod's name and labels: its newest sandbox, or else the
// newest of its containers whose sandbox is known.
func (g *group) newest() *item {
	if len(g.sandboxes) > 0 {
		return g.sandboxes[0]
	}
	i := slices.IndexFunc(g.containers, func(c *item) bool { return c.labels != nil })
	return g.containers[max(i, 0)]
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
