package differ

import "github.com/pleg-pipeline/pleg-pipeline/stage"

// queue is first in, first out. It reuses its memory, which stays within twice its
// greatest length.
type queue struct {
	changes []stage.Change
	head    int
}

func (q *queue) len() int { return len(q.changes) - q.head }

// offer returns the channel and the change of a select case that sends the first
// change. While the queue is empty the channel is nil and the case is off.
func (q *queue) offer(to chan<- stage.Change) (chan<- stage.Change, stage.Change) {
	if q.len() == 0 {
		return nil, stage.Change{}
	}
	return to, q.changes[q.head]
}

func (q *queue) push(c ...stage.Change) { q.changes = append(q.changes, c...) }

func (q *queue) pop() {
	q.changes[q.head] = stage.Change{}
	q.head++
	if q.head > len(q.changes)/2 || q.head == len(q.changes) {
		n := copy(q.changes, q.changes[q.head:])
		clear(q.changes[n:])
		q.changes, q.head = q.changes[:n], 0
	}
}
