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

	"github.com/spf13/cobra"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
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
		return console{w, true, slog.New(slog.NewJSONHandler(w, options))}
	}
	return console{w, false, slog.New(slog.NewTextHandler(w, options))}
}

// say prints a notice at every log level: as a plain line, or as a log line if the
// log lines are JSON.
func (c console) say(ctx context.Context, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !c.json {
		fmt.Fprintf(c.w, "%s: %s\n", Name, printable(text))
		return
	}
	notices := slog.New(slog.NewJSONHandler(c.w, nil))
	notices.InfoContext(ctx, text) //nolint:sloglint // a sentence for people, not a record to search
}

// printable replaces control characters, which a runtime or a daemon may send, but
// keeps line breaks.
func printable(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = printer.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
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
