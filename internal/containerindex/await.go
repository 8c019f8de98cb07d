package containerindex

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// listing is a list of all pods that began after it was requested.
type listing struct {
	requested time.Time
	result    <-chan error  // one of the waiting lookups gets it, and finishes the listing
	done      chan struct{} // closed once the rest is set
	err       error
	// uninspected are the containers of the pods that wait for an inspection.
	uninspected map[pleg.ContainerID]struct{}
}

// await returns the first of some containers, as soon as any is known. A list that began later says
// whether there is no such container, or whether its pod waits for an inspection.
func (x *Index) await(ctx context.Context, ids []pleg.ContainerID, most time.Duration) (lookup.Container, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, lookup.ErrNotYet)
	defer cancel()
	began := time.Now()
	for listed := false; ; {
		c, changed, err := x.get(ids)
		if !errors.Is(err, lookup.ErrNotYet) {
			return c, err
		}
		l := &listing{} // never done
		if !listed {
			l = x.outstanding()
		}
		select {
		case <-changed:
		case err := <-l.result:
			x.finish(l, err)
		case <-l.done:
		case <-x.source.Ended:
			return lookup.Container{}, pleg.ErrStopped
		case <-ctx.Done():
			return lookup.Container{}, context.Cause(ctx)
		}
		if !l.answers(began) {
			continue
		}
		listed = slices.ContainsFunc(ids, l.waits)
		if !listed {
			return x.final(ids)
		}
	}
}

// final returns the answer once no pod with the containers waits for an inspection: a container
// that has ended meanwhile is in the index.
func (x *Index) final(ids []pleg.ContainerID) (lookup.Container, error) {
	c, _, err := x.get(ids)
	if errors.Is(err, lookup.ErrNotYet) {
		err = lookup.ErrNoContainer
	}
	return c, err
}

// wake is called with mu held.
func (x *Index) wake() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// outstanding returns the list that was asked for and is not finished. There is at most one list,
// however many lookups wait or follow each other.
func (x *Index) outstanding() *listing {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.listing == nil {
		x.listing = &listing{requested: time.Now(), result: x.source.Relist(), done: make(chan struct{})}
	}
	return x.listing
}

func (x *Index) finish(l *listing, err error) {
	l.err, l.uninspected = err, make(map[pleg.ContainerID]struct{})
	for _, pod := range x.source.Uninspected(time.Now()) { // once for all who wait
		for _, c := range slices.Concat(pod.Containers, pod.Sandboxes) {
			l.uninspected[c.ID] = struct{}{}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.listing = nil
	close(l.done)
}

// waits reports whether the pod of a container waits for an inspection.
func (l *listing) waits(wanted pleg.ContainerID) bool {
	for id := range l.uninspected {
		if begins(id, wanted) {
			return true
		}
	}
	return false
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
