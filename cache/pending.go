package cache

import (
	"cmp"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Pending is a pod of which a listing showed a change that is still to be
// inspected.
type Pending struct {
	UID pleg.PodUID
	// Status is that of the last inspection; nil if there was none, or if it
	// failed.
	Status *pleg.PodStatus
	// Since is the time of the listing from which on every listing showed a
	// change still to be inspected.
	Since time.Time
}

// Pending returns the backlog of inspections as of the last listing, without
// the pods that have been inspected since; the one that waits longest is first.
func (c *Cache) Pending() []Pending {
	backlog := c.backlog()
	slices.SortFunc(backlog, func(a, b Pending) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID))
	})
	return backlog
}

func (c *Cache) backlog() []Pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	backlog := make([]Pending, 0, len(c.pending))
	for uid, since := range c.pending {
		p := Pending{UID: uid, Since: since}
		if e := c.entries[uid]; e != nil {
			p.Status = e.status
		}
		backlog = append(backlog, p)
	}
	return backlog
}
