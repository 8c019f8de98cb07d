package podcache

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

type waiter struct {
	newerThan time.Time
	ready     chan struct{} // closed once the pod is fresh enough
}

func (c *Cache) wake(uid pleg.PodUID) {
	waiters := c.waiters[uid]
	fresh := c.freshness(c.entries[uid])
	kept := waiters[:0]
	for _, w := range waiters {
		if fresh.After(w.newerThan) {
			close(w.ready)
		} else {
			kept = append(kept, w)
		}
	}
	c.setWaiters(uid, kept)
}

func (c *Cache) removeWaiter(uid pleg.PodUID, w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setWaiters(uid, slices.DeleteFunc(c.waiters[uid], func(other *waiter) bool { return other == w }))
}

func (c *Cache) setWaiters(uid pleg.PodUID, waiters []*waiter) {
	if len(waiters) == 0 {
		delete(c.waiters, uid)
		return
	}
	c.waiters[uid] = waiters
}
