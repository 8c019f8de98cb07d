// Package podcache keeps the newest status of every pod and lets callers wait for a status that is
// new enough.
//
// It is the one structure of the pipeline that goroutines share. Two stages write it: the inspector
// writes the result of an inspection, the differ writes which pods a listing covers without an
// inspection. It corresponds to the kubelet's kubecontainer.Cache, with one difference: a listing
// does not cover the pods that wait for an inspection.
package podcache

import (
	"context"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Cache maps pod UIDs to statuses. All methods are safe for concurrent use.
// The statuses in it are read-only.
type Cache struct {
	mu      sync.Mutex
	entries map[pleg.PodUID]*entry
	// observed is the time of the newest listing, which covers every pod that is not
	// pending; listings is its number.
	observed time.Time
	listings uint64
	// pending is the number of pods that the newest listing does not cover, unseen that of those without a
	// status, known that of all pods with a status or an error.
	pending, unseen, known int
	// order are the pending pods, the longest wait first, and some that are not pending any more. failed
	// are the pods whose last inspection failed.
	order  []wait
	failed map[pleg.PodUID]struct{}
	// gone lists the entries of pods without a status. Some of them may have a status by now.
	gone    []pleg.PodUID
	waiters map[pleg.PodUID][]*waiter
	removed removed
	// closed is closed by Close, synced by MarkSynced.
	closed, synced chan struct{}
	markSynced     sync.Once
}

type entry struct {
	status *pleg.PodStatus
	err    error
	at     time.Time
	// gone is set if there is no status: the pod was found gone, or was never inspected.
	gone bool
	// last is the status of the last inspection that succeeded. It was still true at
	// lastAsOf, and perhaps later: see the method. An error leaves both.
	last     *pleg.PodStatus
	lastAsOf time.Time
	// behind is set by a listing that does not cover the pod.
	behind behind
}

// behind is the listed state of a pod that waits for its inspection. It applies while that listing
// is the newest, so that the next one, which names the pods that still wait, ends it for all others
// without touching them.
type behind struct {
	listing uint64 // the number of the listing; 0 once an inspection as new as the listing has ended
	pod     *pleg.Pod
	since   time.Time // the time of the first listing since the pod was last covered
}

// New returns an empty cache.
func New() *Cache {
	return &Cache{
		removed: removed{byID: make(map[pleg.ContainerID]removedStatus)},
		entries: make(map[pleg.PodUID]*entry),
		waiters: make(map[pleg.PodUID][]*waiter),
		failed:  make(map[pleg.PodUID]struct{}),
		closed:  make(chan struct{}), synced: make(chan struct{}),
	}
}

// Get returns the newest status of the pod without waiting. If the last inspection
// failed, the error is a [pleg.InspectionError]. For a pod that is gone or was never
// inspected, it is [pleg.ErrUnknownPod].
func (c *Cache) Get(uid pleg.PodUID) (*pleg.PodStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get(uid)
}

// GetNewerThan returns the pod's status, as [Cache.Get] does, as soon as an observation of the pod
// that began after t has been applied. A listing that shows the pod unchanged or gone is such an
// observation; a listing that shows a change is applied once the pod has been inspected. It blocks
// until then. It returns the cause of ctx if ctx ends first, and [pleg.ErrStopped] if [Cache.Close]
// is called first.
func (c *Cache) GetNewerThan(ctx context.Context, uid pleg.PodUID, t time.Time) (*pleg.PodStatus, error) {
	c.mu.Lock()
	if c.freshness(c.entries[uid]).After(t) {
		defer c.mu.Unlock()
		return c.get(uid)
	}
	w := &waiter{newerThan: t, ready: make(chan struct{})}
	c.waiters[uid] = append(c.waiters[uid], w)
	c.mu.Unlock()

	select {
	case <-w.ready:
		return c.Get(uid)
	case <-ctx.Done():
		c.removeWaiter(uid, w)
		return nil, context.Cause(ctx)
	case <-c.closed:
		c.removeWaiter(uid, w)
		return nil, pleg.ErrStopped
	}
}

// Close notes that nothing will be written any more. The cache stays readable. It is called
// once.
func (c *Cache) Close() { close(c.closed) }

// Set stores the result of an inspection: a status, or its error. at is the time of the observation
// that led to it; a status older than the entry's is ignored.
func (c *Cache) Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time) {
	c.put(uid, entry{status: status, err: err, at: at})
}

// Delete notes that the observation of time at found the pod gone.
func (c *Cache) Delete(uid pleg.PodUID, at time.Time) {
	c.put(uid, entry{at: at, gone: true})
}

// Touch notes that the observation of time at equals the pod in the cache.
func (c *Cache) Touch(uid pleg.PodUID, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entryOf(uid) // if the pod is gone, that releases those who wait for it
	if e.at.After(at) {
		return
	}
	e.at = at
	c.applied(uid, e, at)
}

// Observe notes a listing of all pods. It covers every pod except the pods in pending, whose change
// is not inspected yet. The cache keeps the pods, not the slice.
func (c *Cache) Observe(at time.Time, pending []*pleg.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var fresh []wait
	unseen := 0
	for _, pod := range pending {
		e := c.entryOf(pod.UID)
		if !c.isPending(e) {
			e.behind.since, e.lastAsOf = at, c.lastAsOf(e) // the listing before covered it
			fresh = append(fresh, wait{pod.UID, at})
		}
		e.behind.pod, e.behind.listing = pod, c.listings+1
		if e.gone {
			unseen++
		}
	}
	c.observed = at
	c.listings++
	c.pending, c.unseen = len(pending), unseen
	c.queue(fresh)
	kept := c.gone[:0]
	for _, uid := range c.gone {
		switch e := c.entries[uid]; {
		case e == nil || !e.gone:
		case e.at.After(at) || c.isPending(e):
			kept = append(kept, uid) // found gone since the listing began, or not inspected yet
		default:
			delete(c.entries, uid)
		}
	}
	c.gone = kept
	for uid := range c.waiters {
		c.wake(uid)
	}
}

// entryOf returns the entry of a pod, a new one if there is none.
func (c *Cache) entryOf(uid pleg.PodUID) *entry {
	e := c.entries[uid]
	if e == nil {
		e = &entry{gone: true}
		c.entries[uid] = e
		c.gone = append(c.gone, uid)
	}
	return e
}

func (c *Cache) put(uid pleg.PodUID, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.entries[uid]
	if have != nil && have.at.After(e.at) {
		return
	}
	if have != nil {
		e.behind = have.behind
		c.count(have, -1)
	}
	c.count(&e, 1)
	if e.err != nil {
		c.failed[uid] = struct{}{}
	} else {
		delete(c.failed, uid)
	}
	switch {
	case e.err == nil:
		e.last = e.status // nil if the pod is gone
	case have != nil:
		e.last, e.lastAsOf = have.last, c.lastAsOf(have)
	}
	c.entries[uid] = &e
	if e.gone {
		c.gone = append(c.gone, uid)
	}
	c.applied(uid, &e, e.at)
}

// applied lets the global time cover the pod again if its observation is at least as
// new as the last listing. A pod whose inspection failed still waits for one that succeeds.
func (c *Cache) applied(uid pleg.PodUID, e *entry, at time.Time) {
	if e.err == nil && !at.Before(c.observed) {
		if c.isPending(e) {
			c.pending--
			if e.gone {
				c.unseen--
			}
		}
		e.behind.listing = 0
	}
	c.wake(uid)
}

// count adds an entry to the numbers, or takes it out.
func (c *Cache) count(e *entry, n int) {
	switch {
	case !e.gone:
		c.known += n
	case c.isPending(e):
		c.unseen += n
	}
}

// isPending reports whether the newest listing does not cover the pod.
func (c *Cache) isPending(e *entry) bool {
	return e.behind.listing > 0 && e.behind.listing == c.listings
}

func (c *Cache) get(uid pleg.PodUID) (*pleg.PodStatus, error) {
	switch e := c.entries[uid]; {
	case (e == nil || e.gone) && c.isUnsynced(e):
		return nil, pleg.ErrNotSynced
	case e == nil || e.gone:
		return nil, pleg.ErrUnknownPod
	case e.err != nil:
		return nil, &pleg.InspectionError{Err: e.err}
	default:
		return e.status, nil
	}
}

// isUnsynced reports whether nothing is known of a pod yet: no list has been answered, or the pod
// is in the first list and not inspected. e may be nil.
func (c *Cache) isUnsynced(e *entry) bool {
	return !c.IsSynced() && (e == nil && c.listings == 0 || e != nil && c.isPending(e))
}

// IsSynced reports whether the first list is committed.
func (c *Cache) IsSynced() bool {
	select {
	case <-c.synced:
		return true
	default:
		return false
	}
}

// MarkSynced notes that a list has been committed, and its events published.
func (c *Cache) MarkSynced() { c.markSynced.Do(func() { close(c.synced) }) }

// Synced returns a channel that is closed once the first list is committed: each of its pods
// was inspected, or its inspection failed or hangs.
func (c *Cache) Synced() <-chan struct{} { return c.synced }

// freshness is the time of the newest applied observation of the pod; e may be nil.
func (c *Cache) freshness(e *entry) time.Time {
	switch {
	case e == nil:
		return c.observed
	case c.isPending(e) || e.at.After(c.observed):
		return e.at
	}
	return c.observed
}

// lastAsOf returns the latest time at which the last good status is known to be true.
func (c *Cache) lastAsOf(e *entry) time.Time {
	if fresh := c.freshness(e); e.err == nil && e.last != nil && fresh.After(e.lastAsOf) {
		return fresh
	}
	return e.lastAsOf
}

// listed returns the pod in the newest listing if that listing does not cover the pod, otherwise
// nil.
func (c *Cache) listed(e *entry) *pleg.Pod {
	if c.isPending(e) {
		return e.behind.pod
	}
	return nil
}
