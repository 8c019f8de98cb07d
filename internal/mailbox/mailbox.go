// Package mailbox hands requests to an actor without ever blocking who asks,
// also before the actor runs and after it has ended.
package mailbox

import "sync"

// Box holds distinct values until its one owner takes them. A value that is
// put again before it was taken counts once, so the box never holds more than
// there are distinct values. Put is safe for concurrent use; the other methods
// belong to the owner.
type Box[T comparable] struct {
	wake chan struct{}

	mu     sync.Mutex
	values []T
	held   map[T]struct{}
	closed bool
}

// New returns an empty, open box.
func New[T comparable]() *Box[T] {
	return &Box[T]{wake: make(chan struct{}, 1), held: make(map[T]struct{})}
}

// Put leaves v for the owner and reports whether the box is still open.
func (b *Box[T]) Put(v T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if _, ok := b.held[v]; ok {
		return true
	}
	b.held[v] = struct{}{}
	b.values = append(b.values, v)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

// Wake returns a channel that is ready once there is something to take.
func (b *Box[T]) Wake() <-chan struct{} { return b.wake }

// Take empties the box and returns its values in the order they were put.
func (b *Box[T]) Take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take()
}

// Close takes what is left and makes every later Put report false.
func (b *Box[T]) Close() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.take()
}

func (b *Box[T]) take() []T {
	select {
	case <-b.wake:
	default:
	}
	values := b.values
	b.values = nil
	clear(b.held)
	return values
}
