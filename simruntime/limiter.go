package simruntime

import (
	"container/list"
	"context"
	"sync"
)

// limiter lets a bounded number of calls through, in the order of arrival.
// Unlike a semaphore of fixed size its bound may change while calls wait.
type limiter struct {
	mu      sync.Mutex
	bound   int // if 0, none
	running int
	waiting *list.List // of chan struct{}, closed to let the waiter through
}

// acquire waits for its turn or for the end of ctx.
func (l *limiter) acquire(ctx context.Context) error {
	l.mu.Lock()
	if l.waiting.Len() == 0 && l.free() {
		l.running++
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	place := l.waiting.PushBack(turn)
	l.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn: // let through at the same moment: hand the turn on
		l.running--
		l.wake()
	default:
		l.waiting.Remove(place)
	}
	return context.Cause(ctx)
}

func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	l.wake()
}

func (l *limiter) setBound(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bound = n
	l.wake()
}

func (l *limiter) free() bool { return l.bound == 0 || l.running < l.bound }

func (l *limiter) wake() {
	for l.free() {
		first := l.waiting.Front()
		if first == nil {
			return
		}
		l.waiting.Remove(first)
		l.running++
		close(first.Value.(chan struct{}))
	}
}
