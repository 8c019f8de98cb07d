// Package mailbox passes requests to an actor and never blocks the sender, even
// before the actor runs and after it has ended.
package mailbox

import "sync"

// Box holds distinct values until its one owner takes them. A value that is put
// several times before that is held once, which bounds the box by the number of
// distinct values. Put is safe for concurrent use; only the owner may call the other
// methods.
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

// Put adds v and reports whether the box is still open.
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

// Wake returns a channel that is ready while the box holds values.
func (b *Box[T]) Wake() <-chan struct{} { return b.wake }

// Take empties the box and returns its values in the order in which they were put.
func (b *Box[T]) Take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.drain()
}

// Close returns what [Box.Take] would, and makes every later Put return false.
func (b *Box[T]) Close() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.drain()
}

func (b *Box[T]) drain() []T {
	select {
	case <-b.wake:
	default:
	}
	values := b.values
	b.values = nil
	clear(b.held)
	return values
}
