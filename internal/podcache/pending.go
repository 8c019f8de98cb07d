package podcache

import (
	"cmp"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Pending returns the pods that have waited for an inspection since the last listing or an earlier
// one, the longest wait first. It does not wait for the runtime.
func (c *Cache) Pending() []cache.Pending {
	c.mu.Lock()
	var pending []cache.Pending
	for uid, e := range c.entries {
		if c.isPending(e) {
			pending = append(pending, c.pendingOf(uid, e))
		}
	}
	c.mu.Unlock()
	slices.SortFunc(pending, byWait)
	return pending
}

// Waiting summarizes the pods that wait for an inspection, as [Cache.Pending] returns them.
type Waiting struct {
	Pods int
	// First are those that wait longest, at most [MaxFirst]; Failed those whose last inspection failed,
	// all of them, the longest wait first.
	First, Failed []cache.Pending
}

// MaxFirst is the greatest length of Waiting.First.
const MaxFirst = 3

// Waiting returns a summary of the pods that wait, without a look at each. It does not wait for the
// runtime.
func (c *Cache) Waiting() Waiting {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := Waiting{Pods: c.pending}
	looked := 0
	for ; looked < len(c.order) && len(w.First) < MaxFirst; looked++ {
		if e := c.waiting(c.order[looked]); e != nil {
			w.First = append(w.First, c.pendingOf(c.order[looked].uid, e))
		}
	}
	c.order = c.order[looked-len(w.First):] // the pods between no longer wait and are not looked at again
	for n, p := range w.First {
		c.order[n] = wait{p.UID, p.Since}
	}
	for uid := range c.failed {
		if e := c.entries[uid]; c.isPending(e) {
			w.Failed = append(w.Failed, c.pendingOf(uid, e))
		}
	}
	slices.SortFunc(w.Failed, byWait)
	return w
}

// wait is a pod and the time since which it is pending.
type wait struct {
	uid   pleg.PodUID
	since time.Time
}

// waiting returns the entry of a pod that is still pending since that time; otherwise nil.
func (c *Cache) waiting(w wait) *entry {
	if e := c.entries[w.uid]; e != nil && c.isPending(e) && e.behind.since.Equal(w.since) {
		return e
	}
	return nil
}

// queue appends the pods that the newest listing does not cover, and the one before did.
func (c *Cache) queue(fresh []wait) {
	c.order = slices.DeleteFunc(c.order, func(w wait) bool { return c.waiting(w) == nil })
	slices.SortFunc(fresh, func(a, b wait) int { return cmp.Compare(a.uid, b.uid) })
	c.order = append(c.order, fresh...)
}

func (c *Cache) pendingOf(uid pleg.PodUID, e *entry) cache.Pending {
	return cache.Pending{UID: uid, Status: e.status, Err: e.err, Pod: e.behind.pod, Since: e.behind.since}
}

func byWait(a, b cache.Pending) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID))
}

// Uninspected returns the pods whose listed change has not been inspected successfully: their
// inspection has failed, or they have waited for it since a time or an earlier one. They have no
// order.
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
