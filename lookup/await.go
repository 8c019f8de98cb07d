package lookup

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// listing is a list of all pods that began after it was requested.
type listing struct {
	requested time.Time
	result    <-chan error  // one of those that wait gets it, and finishes the listing
	done      chan struct{} // closed once the rest is set
	err       error
	// uninspected are the containers of the pods that wait for an inspection.
	uninspected map[pleg.ContainerID]pleg.PodUID
}

// await returns the first of some containers, as soon as one is known.
func (x *Index) await(ctx context.Context, ids []pleg.ContainerID, most time.Duration) (Container, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, ErrNotYet)
	defer cancel()
	began := time.Now()
	var pod pleg.PodUID // has one of the containers, and waits for an inspection
	for {
		c, ok, changed := x.get(ids)
		if ok {
			return c, nil
		}
		if pod != "" && !x.listed(pod, ids) {
			return x.final(ids)
		}
		l := &listing{} // never done
		if pod == "" {
			l = x.outstanding()
		}
		select {
		case <-changed:
		case err := <-l.result:
			x.finish(l, err)
		case <-l.done:
		case <-x.source.Ended:
			return Container{}, pleg.ErrStopped
		case <-ctx.Done():
			return Container{}, context.Cause(ctx)
		}
		if pod != "" || !l.answers(began) {
			continue
		}
		for _, id := range ids {
			pod = cmp.Or(pod, l.uninspected[id])
		}
		if pod == "" {
			return x.final(ids)
		}
		x.countAwaiting(1)
		defer x.countAwaiting(-1)
	}
}

// final returns the answer once no pod with the containers waits for an inspection: one
// that has ended meanwhile is in the index.
func (x *Index) final(ids []pleg.ContainerID) (Container, error) {
	if c, ok, _ := x.get(ids); ok {
		return c, nil
	}
	return Container{}, ErrNoContainer
}

// listed reports whether a pod that waits for an inspection has one of the containers.
func (x *Index) listed(uid pleg.PodUID, ids []pleg.ContainerID) bool {
	pod := x.source.Listed(uid)
	return pod != nil && slices.ContainsFunc(slices.Concat(pod.Containers, pod.Sandboxes), func(c *pleg.Container) bool { return slices.Contains(ids, c.ID) })
}

// Written notes that the source has changed. Those who await an inspection look again.
func (x *Index) Written() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.awaiting > 0 {
		x.wake()
	}
}

// wake is called with mu held.
func (x *Index) wake() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// countAwaiting counts those who await an inspection.
func (x *Index) countAwaiting(n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.awaiting += n
}

// outstanding returns the list that was asked for and is not finished. There is at most one,
// so that lookups in a row neither cause lists in a row nor keep anything in the lister.
func (x *Index) outstanding() *listing {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.listing == nil {
		x.listing = &listing{requested: time.Now(), result: x.source.Relist(), done: make(chan struct{})}
	}
	return x.listing
}

func (x *Index) finish(l *listing, err error) {
	l.err, l.uninspected = err, make(map[pleg.ContainerID]pleg.PodUID)
	for _, pod := range x.source.Uninspected() { // once for all who wait
		for _, c := range slices.Concat(pod.Containers, pod.Sandboxes) {
			l.uninspected[c.ID] = pod.UID
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.listing = nil
	close(l.done)
}

// answers reports whether the list has succeeded and began after a time.
func (l *listing) answers(since time.Time) bool {
	select {
	case <-l.done:
		return l.err == nil && !l.requested.Before(since)
	default:
		return false
	}
}
