package differ

import "github.com/pleg-pipeline/pleg-pipeline/stage"

// queue is first in, first out. Its memory is reused and stays within twice
// what it holds at most.
type queue struct {
	records []*record
	head    int
}

func (q *queue) len() int { return len(q.records) - q.head }

// offer returns the channel and the change of a select case that sends what is
// in front: the case is off, with a nil channel, while the queue is empty.
func (q *queue) offer(to chan<- stage.Change) (chan<- stage.Change, stage.Change) {
	if q.len() == 0 {
		return nil, stage.Change{}
	}
	return to, q.records[q.head].sent
}

func (q *queue) push(r *record) { q.records = append(q.records, r) }

func (q *queue) pop() {
	q.records[q.head] = nil
	q.head++
	if q.head > len(q.records)/2 || q.head == len(q.records) {
		n := copy(q.records, q.records[q.head:])
		clear(q.records[n:])
		q.records, q.head = q.records[:n], 0
	}
}
