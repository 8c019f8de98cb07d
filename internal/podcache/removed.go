package podcache

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// keepRemoved is how long the status of a removed container is kept, maxRemoved how many
	// statuses are kept.
	keepRemoved = time.Minute
	maxRemoved  = 1024
	// lateEnd is how long after the event of a container's removal the event of its end may come:
	// containerd makes both at once, and sends them in any order.
	lateEnd = 500 * time.Millisecond
)

// removed keeps the final statuses of removed containers, for a subscriber that reads
// a moment later. The cache's lock guards it.
type removed struct {
	byID   map[pleg.ContainerID]removedStatus
	oldest []pleg.ContainerID
	// announced is set while events announce removed containers. changed, if not nil, is closed by
	// the next such event.
	announced bool
	changed   chan struct{}
}

// removedStatus contains no status if events without a status announced the end or the removal of
// the container.
type removedStatus struct {
	status         *pleg.ContainerStatus
	ended, removed bool
	since          time.Time
}

// KeepRemoved keeps the final status of a container that is removed, or may soon be, for a
// while.
func (c *Cache) KeepRemoved(status *pleg.ContainerStatus) {
	c.noteRemoved(status.ID, func(r *removedStatus) {
		if r.status == nil {
			r.status = status
		}
	})
}

// NoteRemoved notes an event without a status: that a container is removed, or else that it has ended.
func (c *Cache) NoteRemoved(id pleg.ContainerID, removed bool) {
	c.noteRemoved(id, func(r *removedStatus) {
		r.removed, r.ended = r.removed || removed, r.ended || !removed
	})
}

func (c *Cache) noteRemoved(id pleg.ContainerID, note func(*removedStatus)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, now := &c.removed, time.Now()
	for len(r.oldest) > 0 && now.Sub(r.byID[r.oldest[0]].since) > keepRemoved {
		r.forgetOldest()
	}
	have := r.byID[id]
	if i := slices.Index(r.oldest, id); i >= 0 { // the container ended before, and is removed now
		r.oldest = slices.Delete(r.oldest, i, i+1)
	} else if len(r.oldest) >= maxRemoved {
		r.forgetOldest()
	}
	r.oldest = append(r.oldest, id)
	have.since = now
	note(&have)
	r.byID[id] = have
	r.wake()
}

func (r *removed) forgetOldest() {
	delete(r.byID, r.oldest[0])
	r.oldest = r.oldest[1:]
}

// AnnounceRemoved notes whether events announce removed containers from now on.
func (c *Cache) AnnounceRemoved(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed.announced = on
	c.removed.wake()
}

// AwaitRemoved returns a channel that is closed when more may be known of the end of a container that is
// not listed any more. Call GetRemoved then, and from time to time. AwaitRemoved returns nil if nothing
// more will be known.
func (c *Cache) AwaitRemoved(id pleg.ContainerID) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.removed
	have := r.byID[id]
	if !r.announced || have.status != nil || have.removed && (have.ended || time.Since(have.since) >= lateEnd) {
		return nil
	}
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// wake ends the waits, so that each looks again.
func (r *removed) wake() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// GetRemoved returns the final status of a container that was removed within the last minute, or
// nil. It may return the status of a container that has ended and is still there. It returns nil
// for a container whose end was not reported. GetRemoved does not wait.
func (c *Cache) GetRemoved(id pleg.ContainerID) *pleg.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.removed.byID[id]; time.Since(r.since) <= keepRemoved {
		return r.status
	}
	return nil
}
