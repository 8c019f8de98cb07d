package httpserver

import (
	"bytes"
	"maps"
	"net/http"
	"sync"
	"time"
)

// share is the part of the time in which answers are made: one in share. Clients that ask
// without end would otherwise take most of what the program gets of the processors.
const share = 5

// shared is a handler that makes one answer at a time. All who ask the same question before the
// answer is begun get this answer, so it is at least as new as each question, and many clients cost
// no more than a few. After each answer it rests, so that it works at most one share of the time.
type shared struct {
	question func(*http.Request) string // requests with the same one get the same answer
	handler  http.Handler
	making   chan struct{} // has room for the one that is made or has just been made

	mu      sync.Mutex
	waiting map[string]*answer // those that are not begun
}

func newShared(question func(*http.Request) string, handler http.Handler) *shared {
	return &shared{question: question, handler: handler, making: make(chan struct{}, 1), waiting: make(map[string]*answer)}
}

func (s *shared) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := s.get(r)
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.code)
	_, _ = w.Write(answer.body.Bytes()) // only the connection of the client can fail
}

// get returns the answer to a request. Nobody may change it.
func (s *shared) get(r *http.Request) *answer {
	question := s.question(r)
	s.mu.Lock()
	if a := s.waiting[question]; a != nil {
		s.mu.Unlock()
		a.made.Wait()
		return a
	}
	a := &answer{header: make(http.Header), code: http.StatusOK}
	a.made.Add(1)
	defer a.made.Done()
	s.waiting[question] = a
	s.mu.Unlock()

	s.making <- struct{}{}
	began := time.Now()
	defer func() {
		time.AfterFunc((share-1)*time.Since(began), func() { <-s.making })
	}()
	s.mu.Lock()
	delete(s.waiting, question)
	s.mu.Unlock()
	s.handler.ServeHTTP(a, r)
	return a
}

// answer is an answer that is sent several times.
type answer struct {
	made   sync.WaitGroup
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(code int) { a.code = code }

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
