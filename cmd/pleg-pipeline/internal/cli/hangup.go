package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// hangup blocks until the reader of out has left, and returns errOutputClosed
// then, or nil once ctx ends. Without it the program would stay until the next
// event, which on a quiet node may be hours away. A file never hangs up.
func hangup(ctx context.Context, out *os.File) error {
	ended, end, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("watch the output: %w", err)
	}
	defer func() { _ = ended.Close() }()
	// Closing one end of a pipe is what wakes poll up when ctx ends.
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
	fds := []unix.PollFd{{Fd: int32(out.Fd())}, {Fd: int32(ended.Fd())}}
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
