// Package asynclog keeps a slow, blocked or broken log handler away from whoever logs.
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

// New returns a logger that hands its records to the handler of another logger without waiting for
// it, and the queue between them.
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

// drain hands out the records until none is left. Whoever flushes waits for it. A handler that
// panics, or ends its goroutine, costs the record, which is counted as discarded.
func (q *Queue) drain(idle chan<- struct{}) {
	done := false
	defer func() {
		if done {
			close(idle)
			return
		}
		_ = recover() // the handler's
		q.mu.Lock()
		q.discarded++
		q.mu.Unlock()
		go q.drain(idle)
	}()
	for {
		e, ok := q.take()
		if !ok {
			done = true
			return
		}
		_ = e.handler.Handle(e.ctx, e.record) // as slog.Logger does
	}
}

// take returns the oldest record; false if none is left.
func (q *Queue) take() (entry, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.entries) == 0 {
		q.entries, q.draining, q.idle = nil, false, nil
		return entry{}, false
	}
	e := q.entries[0]
	q.entries = q.entries[1:]
	return e, true
}

// handler is the slog.Handler of the logger that New returns.
type handler struct {
	queue *Queue
	to    slog.Handler
}

// Enabled implements [slog.Handler]. It is false if the handler panics.
func (h handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer func() {
		if recover() != nil {
			h.queue.mu.Lock()
			defer h.queue.mu.Unlock()
			h.queue.discarded++
		}
	}()
	return h.to.Enabled(ctx, level)
}

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
