package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// drainTimeout is how long the end waits for a reader of the output that stopped
// reading.
const drainTimeout = time.Second

func sayUnread(ctx context.Context, out console) {
	out.say(ctx, "nobody reads the output: the rest of it is lost")
}

// printing runs work, which prints, until it returns, ctx ends or the reader of
// the output closes it. It returns the error of work or the cause of the end.
func printing(ctx context.Context, out console, stdout io.Writer, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if err := waitForReader(ctx, stdout); err != nil {
			cancel(err)
		}
	}()
	defer func() { cancel(nil); <-closed }()
	// Nothing can end a write to a pipe that nobody reads, so this goroutine may
	// outlive the function.
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
		sayUnread(ctx, out)
	}
	return context.Cause(ctx)
}

// waitForReader blocks until the reader of out closes it, and then returns
// errOutputClosed, or until ctx ends. Without it the program would run until the
// next event, which may be hours away on a quiet node. Nobody can close a regular
// file or an out that is not a file.
func waitForReader(ctx context.Context, out io.Writer) error {
	file, ok := out.(*os.File)
	if !ok {
		return nil
	}
	ended, end, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("watch the output: %w", err)
	}
	defer func() { _ = ended.Close() }()
	// When ctx ends, closing this end of the pipe wakes up poll.
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = end.Close()
		close(closed)
	})
	defer func() {
		if stop() {
			_ = end.Close()
			return
		}
		<-closed
	}()
	fds := []unix.PollFd{{Fd: int32(file.Fd())}, {Fd: int32(ended.Fd())}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case fds[1].Revents != 0:
			return nil
		case fds[0].Revents != 0:
			return errOutputClosed
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("watch the output: %w", err)
		}
	}
}
