package cache

import (
	"cmp"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Pending is a pod whose change, shown by a listing, is not inspected yet.
type Pending struct {
	UID pleg.PodUID
	// Status is the result of the last inspection; nil if there was none or it failed.
	Status *pleg.PodStatus
	// Err is the error of the last inspection; nil if there was none or it succeeded.
	Err error
	// Pod is the pod in the newest listing; if that shows it gone, in an earlier one.
	Pod *pleg.Pod
	// Since is the time of the listing that first showed a change. All listings after it
	// showed one that was not inspected yet.
	Since time.Time
}

// Pending returns the pods that wait for an inspection since the last listing or
// longer, the longest wait first. It does not wait for the runtime.
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
	var backlog []Pending
	for uid, e := range c.entries {
		if c.isPending(e) {
			backlog = append(backlog, Pending{UID: uid, Status: e.status, Err: e.err, Pod: e.listed, Since: e.since})
		}
	}
	return backlog
}
