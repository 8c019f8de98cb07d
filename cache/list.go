package cache

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// ErrNotInspected is the error of a pod whose first inspection has not ended yet.
var ErrNotInspected = errors.New("the first inspection has not ended yet")

// Entry is what the cache knows of one pod.
type Entry struct {
	UID pleg.PodUID
	// Status is nil if the last inspection failed, or if there was none. Err then
	// says why; in the second case it is [ErrNotInspected].
	Status *pleg.PodStatus
	Err    error
	// CurrentAsOf is the time of the newest observation that has been applied: Status
	// was true then. It is zero if the pod was never inspected.
	CurrentAsOf time.Time
	// Last is the status of the last inspection that succeeded; nil if none did. It was
	// still true at LastAsOf. If Err is nil, Last is Status.
	Last     *pleg.PodStatus
	LastAsOf time.Time
	// Listed is the pod in the newest listing that showed a change, if that was not
	// inspected successfully yet; otherwise nil.
	Listed *pleg.Pod
}

// List returns what the cache knows of every pod that is not gone, ordered by
// UID. A pod whose first inspection has not ended is included. List does not
// wait for the runtime.
func (c *Cache) List() []Entry {
	entries := c.list()
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.UID, b.UID) })
	return entries
}

func (c *Cache) list() []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := make([]Entry, 0, len(c.entries))
	for uid, e := range c.entries {
		if !e.gone || c.isPending(e) {
			entries = append(entries, c.entry(uid, e))
		}
	}
	return entries
}

// Len returns the number of pods in List.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, e := range c.entries {
		if !e.gone || c.isPending(e) {
			n++
		}
	}
	return n
}

func (c *Cache) entry(uid pleg.PodUID, e *entry) Entry {
	if e.gone {
		return Entry{UID: uid, Err: ErrNotInspected, Listed: c.listed(e)}
	}
	return Entry{
		UID: uid, Status: e.status, Err: e.err, CurrentAsOf: c.freshness(e),
		Last: e.last, LastAsOf: c.lastAsOf(e), Listed: c.listed(e),
	}
}

// Entry returns what the cache knows of one pod; false if the pod is gone or unknown.
// It does not wait for the runtime.
func (c *Cache) Entry(uid pleg.PodUID) (Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[uid]; e != nil && (!e.gone || c.isPending(e)) {
		return c.entry(uid, e), true
	}
	return Entry{}, false
}
