package podcache

import (
	"cmp"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Pending returns the pods that wait for an inspection since the last listing or
// longer, the longest wait first. It does not wait for the runtime.
func (c *Cache) Pending() []cache.Pending {
	c.mu.Lock()
	var pending []cache.Pending
	for uid, e := range c.entries {
		if c.isPending(e) {
			pending = append(pending, cache.Pending{UID: uid, Status: e.status, Err: e.err, Pod: e.behind.pod, Since: e.behind.since})
		}
	}
	c.mu.Unlock()
	slices.SortFunc(pending, func(a, b cache.Pending) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID))
	})
	return pending
}

// Uninspected returns the pods whose listed change has not been inspected successfully: their
// inspection has failed, or they have waited for it since a time or longer. They have no order.
func (c *Cache) Uninspected(since time.Time) []*pleg.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pods []*pleg.Pod
	for _, e := range c.entries {
		if pod := c.listed(e); pod != nil && (e.err != nil || !e.behind.since.After(since)) {
			pods = append(pods, pod)
		}
	}
	return pods
}
