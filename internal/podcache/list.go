package podcache

import (
	"cmp"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// List returns the entry of every pod that is not gone, ordered by UID. A pod whose first
// inspection has not ended is included. List does not wait for the runtime.
func (c *Cache) List() []cache.Entry {
	c.mu.Lock()
	entries := make([]cache.Entry, 0, len(c.entries))
	for uid, e := range c.entries {
		if !e.gone || c.isPending(e) {
			entries = append(entries, c.entry(uid, e))
		}
	}
	c.mu.Unlock()
	slices.SortFunc(entries, func(a, b cache.Entry) int { return cmp.Compare(a.UID, b.UID) })
	return entries
}

// Len returns the number of pods in List, without a look at each.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known + c.unseen
}

func (c *Cache) entry(uid pleg.PodUID, e *entry) cache.Entry {
	if e.gone {
		return cache.Entry{UID: uid, Err: cache.ErrNotInspected, Listed: c.listed(e)}
	}
	return cache.Entry{
		UID: uid, Status: e.status, Err: e.err, CurrentAsOf: c.freshness(e),
		Last: e.last, LastAsOf: c.lastAsOf(e), Listed: c.listed(e),
	}
}

// Entry returns the entry of one pod; false if the pod is gone or unknown. It does not wait for the
// runtime.
func (c *Cache) Entry(uid pleg.PodUID) (cache.Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[uid]; e != nil && (!e.gone || c.isPending(e)) {
		return c.entry(uid, e), true
	}
	return cache.Entry{}, false
}
