package lookup

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// KeepRemoved is how long a removed container can be looked up.
	KeepRemoved = 5 * time.Minute
	// maxRemoved bounds the removed containers that are kept.
	maxRemoved = 1024
)

// Index has the containers of all pods by their ids. Its methods are safe for concurrent use.
// The statuses in it are read-only.
type Index struct {
	source Source

	mu   sync.Mutex
	byID map[pleg.ContainerID]entry
	pods map[pleg.PodUID]*pleg.PodStatus
	// removed are the ids of removed containers, the oldest first. Some may be back.
	removed []pleg.ContainerID
	// added is closed and replaced when containers come.
	added chan struct{}
	// listing is the list that waiting lookups share; nil if none was asked for.
	listing *listing
	// searching has room for one search of the cgroups.
	searching chan struct{}
}

// listing is a list of all pods that began after it was requested.
type listing struct {
	requested time.Time
	result    <-chan error  // one of those that wait gets it, and finishes the listing
	done      chan struct{} // closed once err is set
	err       error
}

// entry is a container in the newest status that has it.
type entry struct {
	pod       *pleg.PodStatus
	removedAt time.Time // zero while the container exists
}

// Source is where an [Index] learns whether there is a container that it does not know.
type Source struct {
	// Relist has the runtime list all pods. The channel gets the error of that list, or nil
	// once the pods that changed are inspected, successfully or not.
	Relist func() <-chan error
	// Uninspected reports whether the newest list has a container of a pod that is not
	// inspected.
	Uninspected func(pleg.ContainerID) bool
	// Ended is closed once nothing is listed any more.
	Ended <-chan struct{}
}

// NewIndex returns an empty index.
func NewIndex(source Source) *Index {
	return &Index{
		source: source, added: make(chan struct{}), searching: make(chan struct{}, 1),
		byID: make(map[pleg.ContainerID]entry), pods: make(map[pleg.PodUID]*pleg.PodStatus),
	}
}

// Fill adds what pods returns. Set and Delete wait until then, so that what they report is
// newer.
func (x *Index) Fill(pods func() []*pleg.PodStatus) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, pod := range pods() {
		x.replace(pod.UID, pod)
	}
}

// Set replaces what is known of a pod.
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
	if pod != nil && pod == before {
		return // Fill had it already
	}
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
		close(x.added)
		x.added = make(chan struct{})
	}
}

// forget drops the containers that were removed too long ago.
func (x *Index) forget(now time.Time) {
	for len(x.removed) > 0 {
		id := x.removed[0]
		if e := x.byID[id]; !e.removedAt.IsZero() {
			if len(x.removed) <= maxRemoved && now.Sub(e.removedAt) <= KeepRemoved {
				return
			}
			delete(x.byID, id)
		}
		x.removed = x.removed[1:]
	}
}

// get returns the first of some containers that is known, and what is closed once there are
// more.
func (x *Index) get(ids []pleg.ContainerID) (c Container, ok bool, added <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		e, ok := x.byID[id]
		if ok && (e.removedAt.IsZero() || time.Since(e.removedAt) <= KeepRemoved) {
			return newContainer(id, e), true, nil
		}
	}
	return Container{}, false, x.added
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

// await returns the first of some containers, as soon as one is known.
func (x *Index) await(ctx context.Context, ids []pleg.ContainerID, most time.Duration) (Container, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, ErrNotYet)
	defer cancel()
	began, listed := time.Now(), false
	for {
		c, ok, added := x.get(ids)
		if ok {
			return c, nil
		}
		l := &listing{} // never done
		if !listed {
			l = x.outstanding()
		}
		select {
		case <-added:
		case err := <-l.result:
			x.finish(l, err)
		case <-l.done:
		case <-x.source.Ended:
			return Container{}, pleg.ErrStopped
		case <-ctx.Done():
			return Container{}, context.Cause(ctx)
		}
		if listed = listed || l.answers(began); !listed {
			continue
		}
		// Asked for first: a pod whose inspection ends meanwhile is in the index.
		uninspected := slices.ContainsFunc(ids, x.source.Uninspected)
		if c, ok, _ := x.get(ids); ok {
			return c, nil
		}
		if !uninspected {
			return Container{}, ErrNoContainer
		}
	}
}

// outstanding returns the list that was asked for and is not finished. There is at most one,
// so that lookups in a row neither cause lists in a row nor keep anything in the lister.
func (x *Index) outstanding() *listing {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.listing == nil {
		x.listing = &listing{requested: time.Now(), result: x.source.Relist(), done: make(chan struct{})}
	}
	return x.listing
}

func (x *Index) finish(l *listing, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l.err, x.listing = err, nil
	close(l.done)
}

// answers reports whether the list has succeeded and began after a time.
func (l *listing) answers(since time.Time) bool {
	select {
	case <-l.done:
		return l.err == nil && !l.requested.Before(since)
	default:
		return false
	}
}

func newContainer(id pleg.ContainerID, e entry) Container {
	c := Container{PodUID: e.pod.UID, PodName: e.pod.Name, PodNamespace: e.pod.Namespace, RemovedAt: e.removedAt}
	if newest := newestSandbox(e.pod); newest != nil {
		c.PodLabels, c.PodAnnotations = newest.Labels, newest.Annotations
	}
	if status := e.pod.Container(id); status != nil {
		c.ContainerStatus = *status
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

func newestSandbox(pod *pleg.PodStatus) (newest *pleg.SandboxStatus) {
	for _, s := range pod.Sandboxes {
		if newest == nil || s.Attempt > newest.Attempt || s.Attempt == newest.Attempt && s.CreatedAt.After(newest.CreatedAt) {
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
