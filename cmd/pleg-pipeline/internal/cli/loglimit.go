package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// logBurst is the number of lines with the same message that are written at once,
	// and logEvery the time after which one more is.
	logBurst = 20
	logEvery = time.Second
	// maxLogValue is the greatest length of a value in a line, in bytes.
	maxLogValue = 1 << 10
	// maxMessages is the number of messages that are counted. The program has fewer.
	maxMessages = 1000
)

// logLimiter limits lines with the same message, and the length of their values: a
// runtime can cause as many as it likes, with names as long as it likes. The next line
// that is written says how many were suppressed. Lines of level debug are not limited.
type logLimiter struct {
	slog.Handler

	lines *logLines
}

// logLines are the lines that were written, by message.
type logLines struct {
	mu         sync.Mutex
	limits     map[string]*rate.Limiter
	suppressed map[string]int
}

func newLogLimiter(h slog.Handler) slog.Handler {
	return logLimiter{h, &logLines{limits: make(map[string]*rate.Limiter), suppressed: make(map[string]int)}}
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
	limited := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		limited.AddAttrs(shorten(a))
		return true
	})
	if suppressed > 0 {
		limited.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return l.Handler.Handle(ctx, limited)
}

// WithAttrs implements [slog.Handler].
func (l logLimiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	shortened := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		shortened[i] = shorten(a)
	}
	return logLimiter{l.Handler.WithAttrs(shortened), l.lines}
}

// WithGroup implements [slog.Handler].
func (l logLimiter) WithGroup(name string) slog.Handler {
	return logLimiter{l.Handler.WithGroup(name), l.lines}
}

// allow reports whether a line may be written now, and how many with the same message
// were not since the last one.
func (l *logLines) allow(message string, at time.Time) (bool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.limits[message]
	if limit == nil {
		if len(l.limits) >= maxMessages {
			clear(l.limits)
			clear(l.suppressed)
		}
		limit = rate.NewLimiter(rate.Every(logEvery), logBurst)
		l.limits[message] = limit
	}
	if !limit.AllowN(at, 1) {
		l.suppressed[message]++
		return false, 0
	}
	suppressed := l.suppressed[message]
	delete(l.suppressed, message)
	return true, suppressed
}

// shorten cuts the value of an attribute.
func shorten(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	var text string
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			text = v.Error()
		case fmt.Stringer:
			text = v.String()
		default:
			text = fmt.Sprint(v)
		}
	default:
		return a
	}
	if len(text) > maxLogValue {
		a.Value = slog.StringValue(fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:maxLogValue], ""), len(text)))
	}
	return a
}
