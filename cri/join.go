package cri

import (
	"cmp"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// joiner joins sandboxes and containers to pods. It keeps the pods of the last list and returns the
// same pointers for pods that did not change.
type joiner struct {
	// unlisted returns what is known of a sandbox that is not listed, or nil.
	unlisted   func(pleg.ContainerID) *item
	groups     map[podKey]*group
	byUID      map[pleg.PodUID]*group // by the UID under which the pod is listed
	bySandbox  map[pleg.ContainerID]*group
	generation uint64

	// What follows is of the last list; a map is new in each, and nil if it is empty.

	homeless []*item // containers that belong to no pod
	// orphans are the containers whose sandbox is not listed.
	orphans []*item
	// unlabelled are the pods that have a sandbox or container without the kubelet's label.
	unlabelled map[pleg.PodUID]struct{}
	// renamed has an item of each pod that is listed under another UID than its own, by that UID.
	renamed map[pleg.PodUID]*item
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
	j.homeless, j.orphans, j.unlabelled, j.renamed = nil, nil, nil, nil
	// Pods that were listed before come first: a new pod must not take their UID.
	var newSandboxes, newContainers, waiting []*item
	for _, s := range sandboxes {
		g := j.group(s)
		j.bySandbox[s.ID] = g
		if g == nil {
			newSandboxes = append(newSandboxes, s)
			continue
		}
		j.addSandbox(g, s)
	}
	for _, c := range containers {
		g, listed := j.bySandbox[c.SandboxID]
		if !listed {
			c = j.complete(c)
			g = j.group(c)
		}
		switch {
		case g != nil:
			j.addContainer(g, c)
		case listed:
			waiting = append(waiting, c)
		case c.podUID == "":
			j.homeless = append(j.homeless, c)
		default:
			newContainers = append(newContainers, c)
		}
	}
	for _, s := range oldestFirst(newSandboxes) {
		g := j.groupOrNew(s)
		j.bySandbox[s.ID] = g
		j.addSandbox(g, s)
	}
	for _, c := range waiting {
		j.addContainer(j.bySandbox[c.SandboxID], c)
	}
	for _, c := range oldestFirst(newContainers) {
		j.addContainer(j.groupOrNew(c), c)
	}
	return j.pods()
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
			if j.renamed == nil {
				j.renamed = make(map[pleg.PodUID]*item)
			}
			j.renamed[g.uid] = g.newest()
		}
	}
	return pods
}

// complete returns a container whose sandbox is not listed with what is known of that sandbox.
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

func (j *joiner) addSandbox(g *group, s *item) {
	j.checkLabel(g.uid, s.label)
	g.sandboxes = append(g.sandboxes, s)
}

func (j *joiner) addContainer(g *group, c *item) {
	j.checkLabel(g.uid, c.label)
	g.containers = append(g.containers, c)
}

// checkLabel records a pod that has an item without a label or with another pod's label. It records
// the other pod too, because its label finds an item that is not its own.
func (j *joiner) checkLabel(uid, label pleg.PodUID) {
	if label == uid {
		return
	}
	if j.unlabelled == nil {
		j.unlabelled = make(map[pleg.PodUID]struct{})
	}
	j.unlabelled[uid], j.unlabelled[label] = struct{}{}, struct{}{}
}

// group returns the group of the pod of an item, or nil if the pod is new. The first call of a
// list empties it. An item without the name of its pod belongs to the pod that has the UID.
func (j *joiner) group(it *item) *group {
	g := j.groups[it.key()]
	if g == nil && it.podName == "" && it.podNamespace == "" {
		g = j.byUID[it.podUID]
	}
	if g != nil && g.generation != j.generation {
		g.generation = j.generation
		clear(g.sandboxes)
		clear(g.containers)
		g.sandboxes, g.containers = g.sandboxes[:0], g.containers[:0]
	}
	return g
}

// groupOrNew is called once all pods that were listed before and still exist have a group in
// this list.
func (j *joiner) groupOrNew(it *item) *group {
	if g := j.group(it); g != nil {
		return g
	}
	g := &group{key: it.key(), uid: it.podUID, generation: j.generation}
	for taken := j.byUID[g.uid]; taken != nil && taken.generation == j.generation; taken = j.byUID[g.uid] {
		g.uid += pleg.PodUID("@" + it.podNamespace + "." + it.podName)
	}
	j.groups[g.key], j.byUID[g.uid] = g, g
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

// newest returns the item that has the pod's name and labels: its newest sandbox, or else the
// newest of its containers whose sandbox is known.
func (g *group) newest() *item {
	if len(g.sandboxes) > 0 {
		return g.sandboxes[0]
	}
	i := slices.IndexFunc(g.containers, func(c *item) bool { return c.labels != nil })
	return g.containers[max(i, 0)]
}

func oldestFirst(items []*item) []*item {
	slices.SortFunc(items, func(a, b *item) int { return newestFirst(b, a) })
	return items
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
