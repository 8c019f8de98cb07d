package httpserver

import (
	"sync"
	"time"
)

// share is the part of the time in which answers are made: one in share. Clients that ask
// without end would otherwise take most of what the program gets of the processors.
const share = 5

// answers makes one answer at a time, and one for all who ask the same before it is begun:
// each is at least as new as its question, and many clients cost no more than a few. After
// each answer it rests, so that it works at most one share of the time.
type answers[T any] struct {
	making chan struct{} // has room for the one that is made or has just been made

	mu      sync.Mutex
	waiting map[string]*answer[T] // those that are not begun
}

type answer[T any] struct {
	made sync.WaitGroup
	body T
}

func newAnswers[T any]() *answers[T] {
	return &answers[T]{making: make(chan struct{}, 1), waiting: make(map[string]*answer[T])}
}

// get returns the answer to a question. Nobody may change it.
func (a *answers[T]) get(question string, body func() T) T {
	a.mu.Lock()
	if w := a.waiting[question]; w != nil {
		a.mu.Unlock()
		w.made.Wait()
		return w.body
	}
	w := new(answer[T])
	w.made.Add(1)
	defer w.made.Done()
	a.waiting[question] = w
	a.mu.Unlock()

	a.making <- struct{}{}
	began := time.Now()
	defer func() {
		time.AfterFunc((share-1)*time.Since(began), func() { <-a.making })
	}()
	a.mu.Lock()
	delete(a.waiting, question)
	a.mu.Unlock()
	w.body = body()
	return w.body
}
