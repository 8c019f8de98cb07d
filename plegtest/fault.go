package plegtest

import (
	"context"
	"time"
)

// Fault is what happens in a call before it answers. If it returns an error, the
// call fails with that error. If it returns nil, the call answers as it would
// without the fault. ctx is the context of the call.
type Fault func(ctx context.Context) error

// Hang is a [Fault]: the call does not return until its context ends.
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Fail returns the fault of a call that fails with err; if err is nil, the call
// succeeds.
func Fail(err error) Fault {
	return func(context.Context) error { return err }
}

// Panic returns the fault of a call that panics with value.
func Panic(value any) Fault {
	return func(context.Context) error { panic(value) }
}

// Delay returns the fault of a call that takes d longer, or ends with its
// context.
func Delay(d time.Duration) Fault {
	return func(ctx context.Context) error { return sleep(ctx, d) }
}

// Block returns the fault of a call that waits until release is closed and
// ignores its context, as a call does that cannot be cancelled.
func Block(release <-chan struct{}) Fault {
	return func(context.Context) error {
		<-release
		return nil
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
