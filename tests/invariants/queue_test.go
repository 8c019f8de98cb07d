package invariants_test

import (
	"context"
	"slices"
	"sync"
	"time"
)

// queue is a runtime that serves a number of inspections at once; the others wait.
// Its method serve is a [plegtest.Fault].
type queue struct {
	servers int
	// takes returns the time of service of the nth call.
	takes func(n int) time.Duration
	// lifo serves the call that came last.
	lifo bool
	// finishes serves cancelled calls in full.
	finishes bool

	mu      sync.Mutex
	calls   int
	free    int
	waiting []*queued
}

type queued struct {
	takes time.Duration
	timer *time.Timer // while it is served
	done  chan struct{}
}

// reset forgets the calls so far.
func (q *queue) reset(servers int, takes func(int) time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.servers, q.free, q.takes, q.calls = servers, servers, takes, 0
}

func (q *queue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.calls
}

func (q *queue) serve(ctx context.Context) error {
	q.mu.Lock()
	c := &queued{takes: q.takes(q.calls), done: make(chan struct{})}
	q.calls++
	q.waiting = append(q.waiting, c)
	q.next()
	q.mu.Unlock()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.finishes {
		return ctx.Err()
	}
	if i := slices.Index(q.waiting, c); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	} else if c.timer.Stop() {
		q.free++
		q.next()
	}
	return ctx.Err()
}

// next serves waiting calls. The lock is held.
func (q *queue) next() {
	for q.free > 0 && len(q.waiting) > 0 {
		i := 0
		if q.lifo {
			i = len(q.waiting) - 1
		}
		c := q.waiting[i]
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.free--
		c.timer = time.AfterFunc(c.takes, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			close(c.done)
			q.free++
			q.next()
		})
	}
}
