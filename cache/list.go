package cache

import (
	"cmp"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Entry is what the cache knows of one pod.
type Entry struct {
	UID pleg.PodUID
	// Status is nil if the last inspection failed, and Err then says why.
	Status *pleg.PodStatus
	Err    error
	// CurrentAsOf is the time of the newest observation that has been applied:
	// the pod is known to have been so at that time.
	CurrentAsOf time.Time
}

// List returns what the cache knows of every pod that is not gone, in the
// order of the UIDs. It does not wait.
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
		if !e.gone {
			entries = append(entries, Entry{UID: uid, Status: e.status, Err: e.err, CurrentAsOf: c.freshness(uid)})
		}
	}
	return entries
}
