// Package asynclog keeps a slow or blocked log handler away from those who log.
package asynclog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxQueued bounds the records that wait for the handler. Beyond it records are
// discarded, and counted.
const maxQueued = 1024

// Queue holds the records that wait for handlers. A goroutine passes them on in their
// order; it exists only while records wait.
type Queue struct {
	mu        sync.Mutex
	entries   []entry
	draining  bool
	discarded int
	idle      chan struct{} // closed once the goroutine has ended
}

type entry struct {
	handler slog.Handler
	ctx     context.Context //nolint:containedctx // handlers read values from it
	record  slog.Record
}

// New returns a logger that hands its records to the handler of another one, without
// waiting for it, and the queue between them.
func New(to *slog.Logger) (*slog.Logger, *Queue) {
	q := &Queue{}
	return slog.New(handler{q, to.Handler()}), q
}

// Flush waits until the handlers have got what was logged before, or until the timeout.
func (q *Queue) Flush(timeout time.Duration) {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

func (q *Queue) put(e entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.entries) == maxQueued {
		q.discarded++
		return
	}
	if q.discarded > 0 {
		e.record.AddAttrs(slog.Int("discardedBefore", q.discarded))
		q.discarded = 0
	}
	q.entries = append(q.entries, e)
	if !q.draining {
		q.draining = true
		q.idle = make(chan struct{})
		go q.drain(q.idle)
	}
}

// drain hands out the records until none is left. Whoever flushes waits for it.
func (q *Queue) drain(idle chan<- struct{}) {
	defer close(idle)
	for {
		q.mu.Lock()
		entries := q.entries
		q.entries = nil
		if len(entries) == 0 {
			q.draining, q.idle = false, nil
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		for _, e := range entries {
			_ = e.handler.Handle(e.ctx, e.record) // as slog.Logger does
		}
	}
}

// handler is the slog.Handler of the logger that New returns.
type handler struct {
	queue *Queue
	to    slog.Handler
}

// Enabled implements [slog.Handler].
func (h handler) Enabled(ctx context.Context, level slog.Level) bool { return h.to.Enabled(ctx, level) }

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	h.queue.put(entry{h.to, context.WithoutCancel(ctx), r.Clone()})
	return nil
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.queue, h.to.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler { return handler{h.queue, h.to.WithGroup(name)} }
