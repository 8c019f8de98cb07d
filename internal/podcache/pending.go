package podcache

import (
	"cmp"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
)

// Pending returns the pods that wait for an inspection since the last listing or
// longer, the longest wait first. It does not wait for the runtime.
func (c *Cache) Pending() []cache.Pending {
	backlog := c.backlog()
	slices.SortFunc(backlog, func(a, b cache.Pending) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID))
	})
	return backlog
}

func (c *Cache) backlog() []cache.Pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	var backlog []cache.Pending
	for uid, e := range c.entries {
		if c.isPending(e) {
			backlog = append(backlog, cache.Pending{UID: uid, Status: e.status, Err: e.err, Pod: e.listed, Since: e.since})
		}
	}
	return backlog
}
