package pipeline

import (
	"context"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Lookup says which container and pod a container id, a process or a cgroup belongs to. The
// first call builds an index of all containers, of about 110 bytes for each, that is kept up
// to date from then on: a container is known once its pod is inspected, which is before the
// event of its start is delivered, and for [lookup.KeepRemoved] after its removal. A call
// takes microseconds, and milliseconds if the cgroups are searched: with Query.WithPath, or
// for a Query.Cgroup without CAP_DAC_READ_SEARCH. With Query.Wait, all pods are listed for a
// container that is not known, once for all calls that wait and not in a row
// (Options.RelistPeriod). Lookup is safe for concurrent use. The error wraps
// [lookup.ErrNoContainer] or [lookup.ErrNotYet], is [pleg.ErrStopped] once Run has returned, or
// is the cause of ctx.
func (p *Pipeline) Lookup(ctx context.Context, q lookup.Query) (lookup.Container, error) {
	x := p.index.Load()
	if x == nil {
		x = p.newIndex()
	}
	return lookup.Host{}.Lookup(ctx, x, q)
}

func (p *Pipeline) newIndex() *lookup.Index {
	x := lookup.NewIndex(lookup.Source{Relist: p.lister.Relist, Uninspected: p.isUninspected, Ended: p.ended})
	x.Fill(func() []*pleg.PodStatus {
		if !p.index.CompareAndSwap(nil, x) {
			return nil // another call was first
		}
		var pods []*pleg.PodStatus
		for _, e := range p.cache.List() {
			if e.Last != nil {
				pods = append(pods, e.Last)
			}
		}
		return pods
	})
	return p.index.Load()
}

// isUninspected reports whether a pod that waits for an inspection lists a container.
func (p *Pipeline) isUninspected(id pleg.ContainerID) bool {
	is := func(c *pleg.Container) bool { return c.ID == id }
	return slices.ContainsFunc(p.cache.List(), func(e cache.Entry) bool {
		return e.Listed != nil && (slices.ContainsFunc(e.Listed.Containers, is) || slices.ContainsFunc(e.Listed.Sandboxes, is))
	})
}
