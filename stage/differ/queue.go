package differ

import "github.com/pleg-pipeline/pleg-pipeline/stage"

// queue is first in, first out. It reuses its memory, which stays within twice its
// greatest length.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

// offer returns the channel and the value of a select case that sends the first one. While
// the queue is empty the channel is nil and the case is off.
func (q *queue[T]) offer(to chan<- T) (chan<- T, T) {
	if q.len() == 0 {
		var none T
		return nil, none
	}
	return to, q.items[q.head]
}

func (q *queue[T]) push(items ...T) { q.items = append(q.items, items...) }

func (q *queue[T]) pop() {
	var none T
	q.items[q.head] = none
	q.head++
	if q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
}

// queues hold what the other stages have not accepted yet. They have at most one change of
// each pod.
type queues struct {
	// inspect are changes that need an inspection, known those that do not.
	inspect, known queue[stage.Change]
	// later holds changes of dead pods until those of running pods are queued, so
	// that a cold start reports first what matters most. Its memory is reused.
	later  []stage.Change
	cancel queue[stage.Cancel]
	marks  queue[stage.Mark]
}

// add queues a change. Those of dead pods wait for flush.
func (q *queues) add(c stage.Change) {
	switch {
	case !needsInspection(c):
		q.known.push(c)
	case c.Pod.Running():
		q.inspect.push(c)
	default:
		q.later = append(q.later, c)
	}
}

// flush queues the changes of dead pods behind all others.
func (q *queues) flush() {
	q.inspect.push(q.later...)
	clear(q.later)
	q.later = q.later[:0]
}
