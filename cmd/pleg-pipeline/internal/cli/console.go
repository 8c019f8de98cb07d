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
	"unicode"

	"github.com/spf13/cobra"
)

// logFlags are the flags of every command that runs for long.
type logFlags struct{ level, format string }

func (f *logFlags) add(cmd *cobra.Command) {
	enumFlag(cmd, &f.level, "log-level", "v", "write log lines of this level and above to stderr", "info", "debug", "warn", "error")
	enumFlag(cmd, &f.format, "log-format", "", "format of the log lines", "text", "json")
}

// addQuiet is [logFlags.add] for a command that people look at.
func (f *logFlags) addQuiet(cmd *cobra.Command) {
	enumFlag(cmd, &f.level, "log-level", "v", "write log lines of this level and above to stderr", "warn", "debug", "info", "error")
	enumFlag(cmd, &f.format, "log-format", "", "format of the log lines", "text", "json")
}

// console is what the program says on stderr: log lines, and a few notices that
// are meant for the person who started it.
type console struct {
	w    io.Writer
	json bool
	log  *slog.Logger
}

func (f logFlags) console(w io.Writer) console {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		panic("cli: " + err.Error()) // the flag lets no other value in
	}
	options := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		return console{w, true, slog.New(slog.NewJSONHandler(w, options))}
	}
	return console{w, false, slog.New(slog.NewTextHandler(w, options))}
}

// say gives notice whatever the level: as a plain line, or among JSON log lines
// as one of them.
func (c console) say(ctx context.Context, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !c.json {
		fmt.Fprintf(c.w, "%s: %s\n", Name, printable(text))
		return
	}
	notices := slog.New(slog.NewJSONHandler(c.w, nil))
	notices.InfoContext(ctx, text) //nolint:sloglint // a sentence for people, not a record to search
}

// printable keeps what a runtime or a daemon says from moving the cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// errOutputClosed means that whoever read the output has left: a normal end.
var errOutputClosed = errors.New("the output is closed")

// outputError returns errOutputClosed if err is that of a closed pipe.
func outputError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return errOutputClosed
	}
	return fmt.Errorf("write output: %w", err)
}

// colorWanted reports whether w is a terminal whose user has not declined
// colours (no-color.org).
func colorWanted(w io.Writer, getenv func(string) string) bool {
	file, ok := w.(*os.File)
	if !ok || getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
