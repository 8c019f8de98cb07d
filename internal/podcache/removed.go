package podcache

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// keepRemoved is how long the status of a removed container is kept, maxRemoved how many
	// are.
	keepRemoved = time.Minute
	maxRemoved  = 1024
)

// removed keeps the final statuses of removed containers, for a subscriber that reads
// a moment later. The cache's lock guards it.
type removed struct {
	byID   map[pleg.ContainerID]removedStatus
	oldest []pleg.ContainerID
}

type removedStatus struct {
	status *pleg.ContainerStatus
	since  time.Time
}

// KeepRemoved keeps the final status of a container that is removed, or may soon be, for a
// while.
func (c *Cache) KeepRemoved(status *pleg.ContainerStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, now := &c.removed, time.Now()
	for len(r.oldest) > 0 && (len(r.oldest) >= maxRemoved || now.Sub(r.byID[r.oldest[0]].since) > keepRemoved) {
		delete(r.byID, r.oldest[0])
		r.oldest = r.oldest[1:]
	}
	if _, ok := r.byID[status.ID]; !ok {
		r.oldest = append(r.oldest, status.ID)
		r.byID[status.ID] = removedStatus{status, now}
	}
}

// GetRemoved returns the final status of a container that was removed within the last minute, or
// nil. It may have the status of a container that has ended and is still there. A container whose
// end nothing reported has none. GetRemoved does not wait.
func (c *Cache) GetRemoved(id pleg.ContainerID) *pleg.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.removed.byID[id]; time.Since(r.since) <= keepRemoved {
		return r.status
	}
	return nil
}
