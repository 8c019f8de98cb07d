package cli

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"
)

// maxUnread bounds the lines that wait for the reader of stderr. Later lines are dropped.
const maxUnread = 1024

// asyncWriter is the stderr of a daemon: every stage of the pipeline logs, and must not wait while
// the reader of a pipe sleeps.
type asyncWriter struct {
	lines   chan []byte
	dropped atomic.Int64
	// notice writes how many lines were dropped before the next one.
	notice        func(w io.Writer, dropped int64)
	closing, done chan struct{}
}

func newAsyncWriter(w io.Writer, notice func(w io.Writer, dropped int64)) *asyncWriter {
	a := &asyncWriter{lines: make(chan []byte, maxUnread), notice: notice, closing: make(chan struct{}), done: make(chan struct{})}
	go a.pass(w) // if nobody reads, a write blocks this goroutine until the process ends
	return a
}

// Write implements [io.Writer].
func (a *asyncWriter) Write(line []byte) (int, error) {
	var text bytes.Buffer
	dropped := a.dropped.Swap(0)
	if dropped > 0 {
		a.notice(&text, dropped)
	}
	text.Write(line)
	select {
	case a.lines <- text.Bytes():
	default:
		a.dropped.Add(dropped + 1)
	}
	return len(line), nil
}

func (a *asyncWriter) pass(w io.Writer) {
	defer close(a.done)
	for {
		select {
		case line := <-a.lines:
			_, _ = w.Write(line)
		case <-a.closing:
			for len(a.lines) > 0 {
				_, _ = w.Write(<-a.lines)
			}
			return
		}
	}
}

// close waits until everything is written, for at most drainTimeout. Later lines may be lost.
func (a *asyncWriter) close() {
	close(a.closing)
	select {
	case <-a.done:
	case <-time.After(drainTimeout):
	}
}
