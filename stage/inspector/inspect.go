package inspector

import (
	"context"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

type result struct {
	change stage.Change
	status *pleg.PodStatus
	err    error
	took   time.Duration
	// cancelled is set if err came after the context had ended.
	cancelled bool
}

// inspect runs on a worker: it touches nothing that the loop owns.
func (i *Inspector) inspect(ctx context.Context, c stage.Change, last *pleg.PodStatus, timeout time.Duration) result {
	start := time.Now()
	status, err := i.runtime.PodStatus(ctx, c.Pod, last, timeout)
	r := result{change: c, status: status, err: err, took: time.Since(start)}
	r.cancelled = err != nil && (ctx.Err() != nil || r.took >= timeout)
	return r
}
