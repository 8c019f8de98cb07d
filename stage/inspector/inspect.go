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
	// hung is set if err did not come promptly.
	hung bool
}

// inspect runs on a worker: it touches nothing that the loop owns.
func (i *Inspector) inspect(ctx context.Context, c stage.Change, last *pleg.PodStatus, timeout time.Duration) result {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, i.timeoutError(timeout))
	defer cancel()
	start := time.Now()
	status, err := i.ask(ctx, c.Pod, last)
	r := result{change: c, status: status, took: time.Since(start)}
	if err != nil {
		r.err = inspectError(c.Pod, err)
		// A runtime may have a shorter timeout of its own.
		r.hung = ctx.Err() != nil || r.took >= i.hungAfter
	}
	return r
}

func inspectError(pod *pleg.Pod, err error) error {
	return fmt.Errorf("inspect pod %s/%s (%s): %w", pod.Namespace, pod.Name, pod.UID, err)
}

func (i *Inspector) timeoutError(timeout time.Duration) error {
	if timeout < i.timeout {
		return fmt.Errorf("no answer within %v, and not before either", timeout)
	}
	return fmt.Errorf("no answer within the inspect timeout of %v", timeout)
}

func (i *Inspector) ask(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (status *pleg.PodStatus, err error) {
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
