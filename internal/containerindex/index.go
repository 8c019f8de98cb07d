package containerindex

import (
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxRemoved bounds the removed containers that are kept.
const maxRemoved = 1024

// Index contains the containers of all pods by their ids. Its methods are safe for concurrent use.
// The statuses in it are read-only.
type Index struct {
	source Source

	mu   sync.Mutex
	byID map[pleg.ContainerID]entry
	pods map[pleg.PodUID]*pleg.PodStatus
	// removed are the ids of removed containers, the oldest first. Some may be back.
	removed []pleg.ContainerID
	// changed is closed and replaced when containers come.
	changed chan struct{}
	// listing is the list that waiting lookups share; nil if none was asked for.
	listing *listing
	// searching bounds the searches of the cgroups to one at a time.
	searching chan struct{}
}

// entry is a container in the newest status that contains it.
type entry struct {
	pod       *pleg.PodStatus
	removedAt time.Time // zero while the container exists
}

// Source tells an [Index] whether a container exists that the index does not contain.
type Source struct {
	// Relist requests a list of all pods. The channel gets the error of that list, or nil
	// once the pods that changed are inspected, successfully or not.
	Relist func() <-chan error
	// Uninspected returns the pods of the newest list whose inspection has failed, or that have
	// waited for an inspection since a time or an earlier one. Pods inspected with success are in
	// the index.
	Uninspected func(since time.Time) []*pleg.Pod
	// Ended is closed once nothing is listed any more.
	Ended <-chan struct{}
}

// NewIndex returns an empty index.
func NewIndex(source Source) *Index {
	return &Index{
		source: source, changed: make(chan struct{}), searching: make(chan struct{}, 1),
		byID: make(map[pleg.ContainerID]entry), pods: make(map[pleg.PodUID]*pleg.PodStatus),
	}
}

// Set replaces the containers of a pod.
func (x *Index) Set(pod *pleg.PodStatus) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.replace(pod.UID, pod)
}

// Delete notes that a pod is gone.
func (x *Index) Delete(uid pleg.PodUID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.replace(uid, nil)
}

func (x *Index) replace(uid pleg.PodUID, pod *pleg.PodStatus) {
	before := x.pods[uid]
	if x.pods[uid] = pod; pod == nil {
		delete(x.pods, uid)
	}
	news := false
	for id := range containerIDs(pod) {
		_, known := x.byID[id]
		news = news || !known
		x.byID[id] = entry{pod: pod}
	}
	now := time.Now()
	for id := range containerIDs(before) {
		if x.byID[id].pod == before {
			x.byID[id] = entry{before, now}
			x.removed = append(x.removed, id)
		}
	}
	x.forget(now)
	if news {
		x.wake()
	}
}

// forget drops the containers that were removed too long ago.
func (x *Index) forget(now time.Time) {
	for len(x.removed) > 0 {
		id := x.removed[0]
		if e := x.byID[id]; !e.removedAt.IsZero() {
			if len(x.removed) <= maxRemoved && now.Sub(e.removedAt) <= lookup.KeepRemoved {
				return
			}
			delete(x.byID, id)
		}
		x.removed = x.removed[1:]
	}
}

// get returns the first of these containers that is known. The error is [lookup.ErrNotYet] if none
// is: changed is closed once that may have changed.
func (x *Index) get(ids []pleg.ContainerID) (c lookup.Container, changed <-chan struct{}, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		if e, ok := x.find(id); ok {
			return newContainer(id, e), nil, nil
		}
		full, err := x.expand(id)
		if err != nil {
			return lookup.Container{}, nil, err
		}
		if full != "" {
			return newContainer(full, x.byID[full]), nil, nil
		}
	}
	return lookup.Container{}, x.changed, lookup.ErrNotYet
}

// find returns a container that exists or was removed not long ago. It is called with mu held.
func (x *Index) find(id pleg.ContainerID) (entry, bool) {
	e, ok := x.byID[id]
	return e, ok && (e.removedAt.IsZero() || time.Since(e.removedAt) <= lookup.KeepRemoved)
}

// expand returns the only full id that begins with digits; "" if none does. It is called with mu
// held.
func (x *Index) expand(digits pleg.ContainerID) (full pleg.ContainerID, err error) {
	if len(digits) >= idLength || !isHex(string(digits)) {
		return "", nil
	}
	for id := range x.byID {
		if !begins(id, digits) {
			continue
		}
		if _, ok := x.find(id); !ok {
			continue
		}
		if full != "" {
			return "", fmt.Errorf("%w: several ids begin with %s: give more of it", pleg.ErrInvalidOption, digits)
		}
		full = id
	}
	return full, nil
}

// ended reports whether nothing is listed any more.
func (x *Index) ended() bool {
	select {
	case <-x.source.Ended:
		return true
	default:
		return false
	}
}

func newContainer(id pleg.ContainerID, e entry) lookup.Container {
	c := lookup.Container{PodUID: e.pod.UID, PodName: e.pod.Name, PodNamespace: e.pod.Namespace, RemovedAt: e.removedAt}
	if newest := newestSandbox(e.pod); newest != nil {
		c.PodLabels, c.PodAnnotations = newest.Labels, newest.Annotations
	}
	if status := e.pod.Container(id); status != nil {
		c.ContainerStatus = *status
		if !e.removedAt.IsZero() { // the end of the container may not have been seen
			c.State = pleg.StateExited
		}
		return c
	}
	s := e.pod.Sandbox(id)
	c.Sandbox = true
	c.ContainerStatus = pleg.ContainerStatus{
		ID: id, Name: e.pod.Name, Attempt: s.Attempt, State: pleg.StateExited, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
	}
	if s.Ready && e.removedAt.IsZero() {
		c.State = pleg.StateRunning
	}
	return c
}

// newestSandbox prefers a ready sandbox: a runtime may have forgotten when it was created.
func newestSandbox(pod *pleg.PodStatus) (newest *pleg.SandboxStatus) {
	for _, s := range pod.Sandboxes {
		switch {
		case newest == nil, s.Ready && !newest.Ready:
			newest = s
		case newest.Ready && !s.Ready:
		case s.Attempt > newest.Attempt || s.Attempt == newest.Attempt && s.CreatedAt.After(newest.CreatedAt):
			newest = s
		}
	}
	return newest
}

// containerIDs ranges over the ids of a pod's containers and sandboxes; the pod may be nil.
func containerIDs(pod *pleg.PodStatus) iter.Seq[pleg.ContainerID] {
	return func(yield func(pleg.ContainerID) bool) {
		if pod == nil {
			return
		}
		for _, c := range pod.Containers {
			if !yield(c.ID) {
				return
			}
		}
		for _, s := range pod.Sandboxes {
			if !yield(s.ID) {
				return
			}
		}
	}
}
