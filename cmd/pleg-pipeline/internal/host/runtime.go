package host

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/shim"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Runtime is a runtime, and the things watched beside its pods. Each command that diagnoses a node
// runs its pipeline on one.
type Runtime struct {
	*cri.Client
	Node  *Watcher
	shims *shim.Watcher
}

// Watch returns a runtime that is watched while [Runtime.Run] runs.
func Watch(client *cri.Client, o Options) *Runtime {
	return &Runtime{client, New(o), shim.New(shim.Options{Proc: o.Proc, Cgroups: o.Cgroups, Follower: o.Follower})}
}

// Report implements [pleg.Reporter].
func (r *Runtime) Report() pleg.Report {
	report := r.Client.Report()
	nodestate.Change(&report.Details, func(n *nodestate.State) { n.Stuck = r.shims.Stuck() })
	r.Node.Report(&report)
	return report
}

// Run looks until ctx ends, and returns its cause. p is the pipeline on this runtime.
func (r *Runtime) Run(ctx context.Context, p shim.Pipeline) error {
	loops, ctx := errgroup.WithContext(ctx)
	loops.Go(func() error { return r.shims.Run(ctx, p, r.Conn()) })
	loops.Go(func() error { return r.Node.Run(ctx, r.Conn(), p.Cache()) })
	return loops.Wait()
}
