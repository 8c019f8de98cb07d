package simruntime

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// Play injects each fault at its time From and clears it at its time Until. The
// times start with the first call of a client; a fault without From holds for
// that call too. Play returns nil when all faults are cleared. If ctx ends
// first, Play clears them and returns context.Cause.
//
// A stream of events meets a fault when it is opened. So Play breaks the open
// streams when a fault of GetContainerEvents begins and when it ends.
func (rt *Runtime) Play(ctx context.Context, faults ...Fault) error {
	for _, f := range faults {
		if err := f.validate(); err != nil {
			return fmt.Errorf("simruntime: %w", err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, f := range faults {
		group.Go(func() error { return rt.play(ctx, f) })
	}
	return group.Wait()
}

func (rt *Runtime) play(ctx context.Context, f Fault) error {
	if f.From > 0 {
		if err := rt.SleepAfterCall(ctx, f.From); err != nil {
			return err
		}
	}
	id := rt.faults.add(f)
	rt.breakEventsFor(f)
	defer func() {
		rt.Clear(id)
		rt.breakEventsFor(f)
	}()
	if f.Until == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return rt.SleepAfterCall(ctx, f.Until-f.From)
}

func (rt *Runtime) breakEventsFor(f Fault) {
	if f.RPC == rpcEvents {
		rt.BreakEvents()
	}
}

// SleepAfterCall waits for the first call of a client, and then for d. If ctx ends
// first, it returns context.Cause.
func (rt *Runtime) SleepAfterCall(ctx context.Context, d time.Duration) error {
	select {
	case <-rt.stats.called:
		return sleep(ctx, d)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
