package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v3"
	"golang.org/x/sys/unix"
)

// errOutputClosed means that the reader of the output closed it: a normal end.
var errOutputClosed = errors.New("the output is closed")

// outputError returns errOutputClosed for the error of a closed pipe.
func outputError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return errOutputClosed
	}
	return fmt.Errorf("write output: %w", err)
}

// terminalWidth returns the number of columns of a terminal; 0 if w is none.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// colorWanted reports whether the output is a terminal whose user did not disable colors
// (no-color.org).
func (p Process) colorWanted() bool {
	return terminalWidth(p.Out) > 0 && p.Getenv("NO_COLOR") == "" && p.Getenv("TERM") != "dumb"
}

func (p Process) hasScreen() bool { return p.Terminal != nil || terminalWidth(p.Out) > 0 }

func (p Process) screen() (tcell.Screen, error) {
	if p.Terminal != nil {
		return p.Terminal()
	}
	return tcell.NewTerminfoScreen(tcell.OptSanitizeContent(true)) // without colors if NO_COLOR is set
}

const maxHeld = 64 << 10

// heldWriter holds back the text that is written between hold and release.
type heldWriter struct {
	mu   sync.Mutex
	w    io.Writer
	held *bytes.Buffer // nil if nothing is held back
}

// Write implements [io.Writer].
func (h *heldWriter) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.held == nil:
		return h.w.Write(p)
	case h.held.Len()+len(p) <= maxHeld:
		h.held.Write(p)
	}
	return len(p), nil
}

func (h *heldWriter) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = new(bytes.Buffer)
}

func (h *heldWriter) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held != nil {
		_, _ = h.w.Write(h.held.Bytes())
		h.held = nil
	}
}

// drainTimeout is how long the end waits for a reader of the output that stopped
// reading.
const drainTimeout = time.Second

// printing runs work, which prints. It ends when work returns, ctx ends or the reader closes the
// output. It returns the error of work or the cause of the end.
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
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, errOutputClosed) {
		return cause // there is nothing to wait for
	}
	select {
	case <-done: //nolint:errcheck // the cause says more
	case <-time.After(drainTimeout):
		out.say(ctx, "nobody reads the output: the rest of it is lost")
	}
	return cause
}

// waitForReader blocks until the reader of out closes it, and then returns
// errOutputClosed, or until ctx ends. Without it the program would run until the
// next event, which may be hours away on a quiet node. Regular files have no reader that could
// close them. Neither has an out that is not a file.
func waitForReader(ctx context.Context, out io.Writer) error {
	file, ok := out.(*os.File)
	if !ok {
		return nil
	}
	ended, end, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("watch the output: %w", err)
	}
	defer func() { _, _ = ended.Close(), end.Close() }()
	// When ctx ends, closing this end of the pipe wakes up poll.
	defer context.AfterFunc(ctx, func() { _ = end.Close() })()
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
