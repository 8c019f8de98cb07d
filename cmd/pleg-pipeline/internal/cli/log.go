package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

type logFlags struct{ level, format string }

// add adds the flags; the first level is the default.
func (f *logFlags) add(cmd *cobra.Command, levels ...string) {
	enumFlag(cmd, &f.level, "log-level", "v", "write log lines of this level and above to stderr", levels...)
	enumFlag(cmd, &f.format, "log-format", "", "format of the log lines", "text", "json")
}

// addQuiet adds the flags of a command that people use in a terminal. Their output already contains
// the facts of a warning.
func (f *logFlags) addQuiet(cmd *cobra.Command) { f.add(cmd, "error", "warn", "info", "debug") }

// console is stderr: log lines, and a few notices for the person who started the
// program.
type console struct {
	w    io.Writer
	json bool
	log  *slog.Logger
	// held is the writer behind w if notices can be held back, otherwise nil.
	held *heldWriter
}

func (f logFlags) console(w io.Writer) console {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		panic("cli: " + err.Error()) // the flag allows no other value
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: shorten}
	if f.format == "json" {
		w = view.JSONWriter(w)
		return console{w: w, json: true, log: slog.New(newLogLimiter(slog.NewJSONHandler(w, options)))}
	}
	return console{w: w, log: slog.New(newLogLimiter(slog.NewTextHandler(w, options)))}
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

// sayNow prints a notice, and those that were held back before.
func (c console) sayNow(ctx context.Context, format string, args ...any) {
	if c.held != nil {
		c.held.release()
	}
	c.say(ctx, format, args...)
}

const (
	// maxNotice is the greatest length of a notice or an error in bytes, maxLogValue of a value in
	// a log line. A daemon or a runtime may send longer texts.
	maxNotice   = 4 << 10
	maxLogValue = 1 << 10
	// logBurst is the number of lines with the same message that are written at once, and logEvery
	// the time after which the next one is.
	logBurst = 20
	logEvery = time.Second
)

func notice(text string) string { return view.PrintableLines(shortened(text, maxNotice)) }

// shortened cuts a text to a number of bytes, and then adds its length.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
}

// logLimiter limits lines with the same message: a runtime can cause as many as it likes.
// The next line that is written says how many were suppressed. Lines of level debug are not
// limited.
type logLimiter struct {
	slog.Handler

	lines *logLines
}

// logLines are the lines that were written, by message: a constant of the program.
type logLines struct {
	mu       sync.Mutex
	messages map[string]*logMessage
}

type logMessage struct {
	limit      *rate.Limiter
	suppressed int // since the last line that was written
}

func newLogLimiter(h slog.Handler) slog.Handler {
	return logLimiter{h, &logLines{messages: make(map[string]*logMessage)}}
}

// Handle implements [slog.Handler].
func (l logLimiter) Handle(ctx context.Context, r slog.Record) error {
	suppressed := 0
	if r.Level > slog.LevelDebug {
		var allowed bool
		if allowed, suppressed = l.lines.allow(r.Message, r.Time); !allowed {
			return nil
		}
	}
	if suppressed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (l logLimiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logLimiter{l.Handler.WithAttrs(attrs), l.lines}
}

// WithGroup implements [slog.Handler].
func (l logLimiter) WithGroup(name string) slog.Handler {
	return logLimiter{l.Handler.WithGroup(name), l.lines}
}

// allow reports whether a line may be written now, and how many lines with the same message were
// dropped since the last written one.
func (l *logLines) allow(message string, at time.Time) (bool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.messages[message]
	if m == nil {
		m = &logMessage{limit: rate.NewLimiter(rate.Every(logEvery), logBurst)}
		l.messages[message] = m
	}
	if !m.limit.AllowN(at, 1) {
		m.suppressed++
		return false, 0
	}
	suppressed := m.suppressed
	m.suppressed = 0
	return true, suppressed
}

func shorten(_ []string, a slog.Attr) slog.Attr {
	if kind := a.Value.Kind(); kind == slog.KindString || kind == slog.KindAny {
		if text := a.Value.String(); len(text) > maxLogValue {
			a.Value = slog.StringValue(shortened(text, maxLogValue))
		}
	}
	return a
}
