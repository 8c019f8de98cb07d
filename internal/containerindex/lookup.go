// Package containerindex maps the containers of all pods by their ids, and finds the container of
// a process or a cgroup.
package containerindex

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Lookup answers a query from an index. The error wraps [lookup.ErrNoContainer] or [lookup.ErrNotYet], is
// [pleg.ErrStopped], or is the cause of ctx.
func (h Host) Lookup(ctx context.Context, x *Index, q lookup.Query) (lookup.Container, error) {
	q.Container = parseID(string(q.Container))
	if err := option.CheckQuery(q); err != nil {
		return lookup.Container{}, err
	}
	c, err := h.lookup(ctx, x, q)
	if err != nil {
		return lookup.Container{}, fmt.Errorf("look up %s: %w", q, err)
	}
	return c, nil
}

func (h Host) lookup(ctx context.Context, x *Index, q lookup.Query) (c lookup.Container, err error) {
	ids := []pleg.ContainerID{q.Container}
	path := ""
	switch {
	case q.PID != 0:
		if ids[0] = h.watchedBy(q.PID); ids[0] != "" {
			break
		}
		path, err = h.pathOfProcess(q.PID)
	case q.Cgroup != 0:
		path, err = h.pathOfCgroup(ctx, x, q.Cgroup)
	}
	if err != nil {
		return lookup.Container{}, err
	}
	if ids[0] == "" {
		if ids = idsIn(path); len(ids) == 0 {
			return lookup.Container{}, lookup.ErrNoContainer
		}
	}
	c, _, err = x.get(ids)
	switch {
	case !errors.Is(err, lookup.ErrNotYet):
	case x.ended():
		err = pleg.ErrStopped
	case q.Wait > 0:
		if c, err = x.await(ctx, ids, q.Wait); errors.Is(err, lookup.ErrNotYet) {
			c, err = x.listed(ids, time.Now())
		}
	default:
		c, err = x.listed(ids, time.Now().Add(-stuckAfter))
	}
	if err != nil {
		return lookup.Container{}, err
	}
	c.CgroupPath = path
	return c, nil
}
