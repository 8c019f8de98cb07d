// Package cache has the newest status of every pod and lets callers wait for one that
// is new enough.
//
// It is the one structure of the pipeline that goroutines share. Two stages write it:
// the inspector writes what an inspection returned, the differ writes which pods a
// listing covers without one. It corresponds to the kubelet's kubecontainer.Cache,
// with one difference: a listing does not cover the pods that wait for an inspection.
package cache

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
	// in pending.
	observed time.Time
	// pending has the pods whose change is not inspected yet. spare is empty memory
	// for the next listing.
	pending, spare map[pleg.PodUID]change
	// gone lists the entries that only remember when a pod was found gone. Some of
	// them may have come back.
	gone    []pleg.PodUID
	waiters map[pleg.PodUID][]*waiter
	removed removed
}

type entry struct {
	status *pleg.PodStatus
	err    error
	at     time.Time
	gone   bool
	// last is the status of the last inspection that succeeded; the pod is known to
	// have been so until lastAsOf. An error leaves both.
	last     *pleg.PodStatus
	lastAsOf time.Time
	// listed is the pod as it was when its inspection failed; nil if it succeeded.
	listed *pleg.Pod
}

// change is a change that listings show.
type change struct {
	// pod is as in the newest listing, since is the time of the first.
	pod   *pleg.Pod
	since time.Time
}

type waiter struct {
	newerThan time.Time
	ready     chan struct{} // closed once the pod is fresh enough
}

// New returns an empty cache. It keeps the final statuses of removed containers
// for keepRemoved, which is positive.
func New(keepRemoved time.Duration) *Cache {
	return &Cache{
		removed: removed{keep: keepRemoved, byID: make(map[pleg.ContainerID]removedStatus)},
		entries: make(map[pleg.PodUID]*entry),
		pending: make(map[pleg.PodUID]change),
		spare:   make(map[pleg.PodUID]change),
		waiters: make(map[pleg.PodUID][]*waiter),
	}
}

// Get returns the newest status of the pod without waiting. If the last inspection
// failed, the status is nil and the error is the inspection's. For a pod that is gone
// or unknown, the status has only the UID.
func (c *Cache) Get(uid pleg.PodUID) (*pleg.PodStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get(uid)
}

// GetNewerThan returns the pod's status, as [Cache.Get] does, as soon as an
// observation of the pod that began after t has been applied. A listing that
// shows the pod unchanged or gone is such an observation; one that shows a
// change is applied once the pod has been inspected. It blocks until then or
// until ctx ends, and then returns the cause of ctx.
func (c *Cache) GetNewerThan(ctx context.Context, uid pleg.PodUID, t time.Time) (*pleg.PodStatus, error) {
	c.mu.Lock()
	if c.freshness(uid).After(t) {
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
		c.forget(uid, w)
		return nil, context.Cause(ctx)
	}
}

// Set stores what an inspection returned: a status, or its error. at is the
// time of the observation that led to it; an older one than the entry has is
// ignored.
func (c *Cache) Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time) {
	c.put(uid, entry{status: status, err: err, at: at})
}

// Delete notes that the observation of time at found the pod gone.
func (c *Cache) Delete(uid pleg.PodUID, at time.Time) {
	c.put(uid, entry{at: at, gone: true})
}

// Touch notes that the observation of time at found the pod as the cache has it.
func (c *Cache) Touch(uid pleg.PodUID, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// No entry means that the pod is gone, which releases those who wait for it.
	if e := c.entries[uid]; e != nil {
		if e.at.After(at) {
			return
		}
		e.at = at
		if e.err == nil {
			e.lastAsOf = at
		}
	} else {
		c.entries[uid] = &entry{at: at, gone: true}
		c.gone = append(c.gone, uid)
	}
	c.applied(uid, at)
}

// Observe notes a listing of all pods. It covers every pod except those in pending,
// whose change is not inspected yet.
// The cache keeps the pods, not the slice.
func (c *Cache) Observe(at time.Time, pending []*pleg.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range pending {
		since := at
		if before, ok := c.pending[pod.UID]; ok {
			since = before.since
		} else if e := c.entries[pod.UID]; e != nil {
			e.lastAsOf = c.lastAsOf(pod.UID, e) // the listing before covered it
		}
		c.spare[pod.UID] = change{pod, since}
	}
	c.observed = at
	clear(c.pending)
	c.pending, c.spare = c.spare, c.pending
	kept := c.gone[:0]
	for _, uid := range c.gone {
		switch e := c.entries[uid]; {
		case e == nil || !e.gone:
		case e.at.After(at):
			kept = append(kept, uid) // found gone since the listing began
		default:
			delete(c.entries, uid)
		}
	}
	c.gone = kept
	for uid := range c.waiters {
		c.wake(uid)
	}
}

func (c *Cache) put(uid pleg.PodUID, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.entries[uid]
	if have != nil && have.at.After(e.at) {
		return
	}
	switch {
	case e.gone:
	case e.err == nil:
		e.last, e.lastAsOf = e.status, e.at
	case have != nil:
		e.last, e.lastAsOf = have.last, c.lastAsOf(uid, have)
		e.listed = c.listed(uid, have)
	default:
		e.listed = c.pending[uid].pod
	}
	c.entries[uid] = &e
	if e.gone {
		c.gone = append(c.gone, uid)
	}
	c.applied(uid, e.at)
}

// applied lets the global time cover the pod again if its observation is at least as
// new as the last listing.
func (c *Cache) applied(uid pleg.PodUID, at time.Time) {
	if !at.Before(c.observed) {
		delete(c.pending, uid)
	}
	c.wake(uid)
}

func (c *Cache) get(uid pleg.PodUID) (*pleg.PodStatus, error) {
	e := c.entries[uid]
	if e == nil || e.gone {
		return &pleg.PodStatus{UID: uid}, nil
	}
	return e.status, e.err
}

// freshness is the time of the newest applied observation of the pod.
func (c *Cache) freshness(uid pleg.PodUID) time.Time {
	var at time.Time
	if e := c.entries[uid]; e != nil {
		at = e.at
	}
	if _, pending := c.pending[uid]; !pending && c.observed.After(at) {
		return c.observed
	}
	return at
}

// lastAsOf returns the latest time at which the pod is known to have been as in the last
// good status.
func (c *Cache) lastAsOf(uid pleg.PodUID, e *entry) time.Time {
	if fresh := c.freshness(uid); e.err == nil && e.last != nil && fresh.After(e.lastAsOf) {
		return fresh
	}
	return e.lastAsOf
}

// listed returns the pod as listings show it if that is not inspected yet, or nil.
func (c *Cache) listed(uid pleg.PodUID, e *entry) *pleg.Pod {
	if change, ok := c.pending[uid]; ok {
		return change.pod
	}
	return e.listed
}

func (c *Cache) wake(uid pleg.PodUID) {
	waiters := c.waiters[uid]
	if len(waiters) == 0 {
		return
	}
	fresh := c.freshness(uid)
	kept := waiters[:0]
	for _, w := range waiters {
		if fresh.After(w.newerThan) {
			close(w.ready)
		} else {
			kept = append(kept, w)
		}
	}
	c.keep(uid, kept)
}

func (c *Cache) forget(uid pleg.PodUID, w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.waiters[uid][:0]
	for _, other := range c.waiters[uid] {
		if other != w {
			kept = append(kept, other)
		}
	}
	c.keep(uid, kept)
}

func (c *Cache) keep(uid pleg.PodUID, waiters []*waiter) {
	if len(waiters) == 0 {
		delete(c.waiters, uid)
		return
	}
	c.waiters[uid] = waiters
}
