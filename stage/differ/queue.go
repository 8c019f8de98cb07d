package differ

// queue is first in, first out. Its memory is reused and stays within twice
// what it holds at most.
type queue struct {
	records []*record
	head    int
}

func (q *queue) len() int { return len(q.records) - q.head }

func (q *queue) front() *record { return q.records[q.head] }

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
