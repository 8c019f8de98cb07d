package asynclog_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/asynclog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gated is a handler that waits at each record until its gate opens.
type gated struct {
	slog.Handler
	gate <-chan struct{}
}

func (g gated) Handle(ctx context.Context, r slog.Record) error {
	<-g.gate
	return g.Handler.Handle(ctx, r)
}

func (g gated) WithAttrs(attrs []slog.Attr) slog.Handler {
	return gated{g.Handler.WithAttrs(attrs), g.gate}
}

func (g gated) WithGroup(name string) slog.Handler {
	return gated{g.Handler.WithGroup(name), g.gate}
}

// plain writes records without their time and level.
func plain(text *bytes.Buffer) slog.Handler {
	return slog.NewTextHandler(text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})
}

func newGated(text *bytes.Buffer) (log *slog.Logger, queue *asynclog.Queue, open func()) {
	gate := make(chan struct{})
	log, queue = asynclog.New(slog.New(gated{plain(text), gate}))
	return log, queue, func() { close(gate) }
}

// Nobody waits for a blocked handler. It gets the records in their order, with the
// attributes of their loggers.
func TestBlockedHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log, queue, open := newGated(&text)
		log.Info("first")
		stage := log.With("stage", "lister").WithGroup("list")
		stage.Warn("second", "pods", 3)
		log.Debug("not enabled")
		synctest.Wait()
		began := time.Now()
		queue.Flush(2 * time.Second)
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("Flush returned after %v, want its timeout", waited)
		}
		open()
		log.Info("third")
		queue.Flush(time.Hour)
		const want = "msg=first\nmsg=second stage=lister list.pods=3\nmsg=third\n"
		if text.String() != want {
			t.Errorf("logged\n%s\nwant\n%s", &text, want)
		}
		queue.Flush(time.Hour) // nothing waits
	})
}

// What waits for a blocked handler is bounded. The next record says how many were
// discarded.
func TestQueueIsBounded(t *testing.T) {
	const bound, flood = 1024, 5000
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log, queue, open := newGated(&text)
		log.Info("blocked")
		synctest.Wait()
		for n := range flood {
			log.Info("flood", "number", n)
		}
		open()
		queue.Flush(time.Hour)
		log.Info("last")
		queue.Flush(time.Hour)
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 1+bound+1 {
			t.Errorf("%d records, want %d", len(lines), 1+bound+1)
		}
		if got, want := lines[len(lines)-1], fmt.Sprintf("msg=last discardedBefore=%d", flood-bound); got != want {
			t.Errorf("the last record is %q, want %q", got, want)
		}
	})
}

// broken is a handler that fails at records with some text, and panics when it is asked for errors.
type broken struct {
	slog.Handler
	fail func()
}

func (b broken) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "bad" {
		b.fail()
	}
	return b.Handler.Handle(ctx, r)
}

func (b broken) Enabled(_ context.Context, level slog.Level) bool {
	if level == slog.LevelError {
		panic("enabled?")
	}
	return true
}

// A handler is the embedder's code: whatever it does costs one record, not the process.
func TestHandlerThatPanics(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("broken") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var text bytes.Buffer
				log, queue := asynclog.New(slog.New(broken{plain(&text), fail}))
				for _, message := range []string{"first", "bad", "second", "bad"} {
					log.Info(message) //nolint:sloglint // the handler fails at one of them
					queue.Flush(time.Hour)
				}
				log.Error("not even asked for")
				log.Info("third")
				queue.Flush(time.Hour)
				const want = "msg=first\nmsg=second discardedBefore=1\nmsg=third discardedBefore=2\n"
				if text.String() != want {
					t.Errorf("logged\n%s\nwant\n%s", &text, want)
				}
			})
		})
	}
}
