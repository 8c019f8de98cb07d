package cli

import (
	"context"
	"io"
	"os"
	"time"
)

// drainTimeout is how long the end waits for a reader of the output that has
// stopped reading.
const drainTimeout = time.Second

// printing runs work, which prints, until it returns, ctx ends or the reader of
// the output leaves, and returns the error of work or the cause of its end.
func printing(ctx context.Context, out console, stdout io.Writer, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		file, ok := stdout.(*os.File)
		if !ok {
			return
		}
		if err := hangup(ctx, file); err != nil {
			cancel(err)
		}
	}()
	defer func() { cancel(nil); <-left }()
	// Nothing can end a write to a pipe that nobody reads: it is not waited for.
	var result error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result = work(ctx)
	}()
	select {
	case <-done:
		return result
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(drainTimeout):
		out.say(ctx, "the output is not read: the last of it is lost")
	}
	return context.Cause(ctx)
}
