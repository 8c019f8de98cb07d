package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// logFlags are the flags of every command that writes log lines.
type logFlags struct{ level, format string }

// add adds the flags of a command that runs as a daemon.
func (f *logFlags) add(cmd *cobra.Command) { f.addLevels(cmd, "info", "debug", "warn", "error") }

// addQuiet adds the flags of a command that people use in a terminal.
func (f *logFlags) addQuiet(cmd *cobra.Command) { f.addLevels(cmd, "warn", "debug", "info", "error") }

func (f *logFlags) addLevels(cmd *cobra.Command, levels ...string) {
	enumFlag(cmd, &f.level, "log-level", "v", "write log lines of this level and above to stderr", levels...)
	enumFlag(cmd, &f.format, "log-format", "", "format of the log lines", "text", "json")
}

// console is stderr: log lines, and a few notices for the person who started the
// program.
type console struct {
	w    io.Writer
	json bool
	log  *slog.Logger
}

func (f logFlags) console(w io.Writer) console {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		panic("cli: " + err.Error()) // the flag allows no other value
	}
	options := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		w = view.JSONWriter(w)
		return console{w, true, slog.New(newLogLimiter(slog.NewJSONHandler(w, options)))}
	}
	return console{w, false, slog.New(newLogLimiter(slog.NewTextHandler(w, options)))}
}

// say prints a notice at every log level: as a plain line, or as a log line if the
// log lines are JSON.
func (c console) say(ctx context.Context, format string, args ...any) {
	text := notice(fmt.Sprintf(format, args...))
	if !c.json {
		fmt.Fprintf(c.w, "%s: %s\n", Name, text)
		return
	}
	notices := slog.New(slog.NewJSONHandler(c.w, nil))
	notices.InfoContext(ctx, text) //nolint:sloglint // a sentence for people, not a record to search
}

// maxNotice is the greatest length of a notice or an error, in bytes. Those of a daemon or
// a runtime may be longer.
const maxNotice = 4 << 10

// notice returns a text as it is printed.
func notice(text string) string {
	if len(text) > maxNotice {
		text = fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:maxNotice], ""), len(text))
	}
	return view.PrintableLines(text)
}

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

// colorWanted reports whether w is a terminal whose user did not disable colors
// (no-color.org).
func colorWanted(w io.Writer, getenv func(string) string) bool {
	file, ok := w.(*os.File)
	if !ok || getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// terminalSize returns the number of columns and lines of a terminal; 0 if w is none.
func terminalSize(w io.Writer) (columns, lines int) {
	file, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

func terminalWidth(w io.Writer) int {
	columns, _ := terminalSize(w)
	return columns
}

// progress replaces the last line of a terminal. Elsewhere it prints nothing.
func (c console) progress(format string, args ...any) {
	if !c.json && terminalWidth(c.w) > 0 {
		fmt.Fprintf(c.w, "\r\x1b[K%s: %s", Name, fmt.Sprintf(format, args...))
	}
}

// clearProgress removes the line of progress.
func (c console) clearProgress() {
	if !c.json && terminalWidth(c.w) > 0 {
		fmt.Fprint(c.w, "\r\x1b[K")
	}
}

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
