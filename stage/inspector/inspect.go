package inspector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sourcegraph/conc/panics"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

type result struct {
	change stage.Change
	status *pleg.PodStatus
	err    error
	took   time.Duration
	// turn is that of [width.begin].
	turn int
}

// inspect runs on a worker: it touches nothing that the loop owns.
func (i *Inspector) inspect(ctx context.Context, c stage.Change, last *pleg.PodStatus) result {
	start := time.Now()
	status, err := i.ask(ctx, c.Pod, last)
	if err != nil {
		err = fmt.Errorf("inspect pod %s/%s (%s): %w", c.Pod.Namespace, c.Pod.Name, c.UID, err)
	}
	return result{change: c, status: status, err: err, took: time.Since(start)}
}

func (i *Inspector) ask(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (status *pleg.PodStatus, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, i.timeout, fmt.Errorf("no answer within the inspect timeout of %v", i.timeout))
	defer cancel()
	// The runtime may be the embedder's: its panic costs this pod one retry.
	if caught := panics.Try(func() { status, err = i.runtime.PodStatus(ctx, pod, last) }); caught != nil {
		i.log.ErrorContext(ctx, "the runtime panicked in PodStatus", "podUID", pod.UID, "err", caught.AsError())
		return nil, fmt.Errorf("panic: %v", caught.Value)
	}
	switch {
	case err != nil:
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return nil, err
	case status == nil:
		return nil, errors.New("the runtime returned neither a status nor an error")
	case slices.Contains(status.Containers, nil) || slices.Contains(status.Sandboxes, nil):
		return nil, errors.New("the runtime returned a status with a nil container or sandbox")
	default:
		return status, nil
	}
}
