package recording

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
)

// Sizes of a [Window]: with these, a node of 110 pods with a change each second needs some 10
// MB for its last six minutes.
const (
	// partSpan and partBytes are the age and the size of what a part has beside its state, at
	// which the next one begins.
	partSpan  = 2 * time.Minute
	partBytes = 4 << 20
	// maxParts and maxBytes bound all parts when the newest begins. There is always one before
	// it, since the newest has nothing but its state then.
	maxParts = 4
	maxBytes = 16 << 20
)

// Window is an [Output] that keeps the last minutes of a recording in memory, for
// [Recorder.Save]. It has parts that each begin with the state at that time, so that any of
// them can be the first. Only the recorder's Run uses it.
type Window struct {
	parts []*part
	fresh map[string]bool // the lists of the present relist that did not fail
}

// part is some lines. The bytes that a buffer has do not change.
type part struct {
	bytes.Buffer
	began offset
	state int // how many of the bytes are the state
}

// NewWindow returns an empty window.
func NewWindow() *Window { return &Window{parts: []*part{{}}, fresh: make(map[string]bool)} }

func (w *Window) newest() *part { return w.parts[len(w.parts)-1] }

// Write adds to the newest part.
func (w *Window) Write(p []byte) (int, error) { return w.newest().Write(p) }

// Flush does nothing.
func (w *Window) Flush() error { return nil }

// isDue reports whether the next part is to begin after a line: after both lists of a relist,
// as at other times the state is not that of one time. Without relists, only the size counts.
func (w *Window) isDue(l line) bool {
	p := w.newest()
	size := p.Len() - p.state
	if size >= 2*partBytes {
		return true
	}
	if !l.Same && (l.List == nil || l.Request != nil) {
		return false
	}
	list := methods[l.Method].list
	if w.fresh[list] { // another relist
		clear(w.fresh)
	}
	w.fresh[list] = true
	return len(w.fresh) == len(kinds) && (size >= partBytes || time.Duration(l.At-p.began) >= partSpan)
}

// startPart begins the next part, and forgets the oldest ones beyond the bounds.
func (w *Window) startPart(at offset, state []byte) {
	p := &part{began: at, state: len(state)}
	_, _ = p.Write(state) // never fails
	w.parts = append(w.parts, p)
	clear(w.fresh)
	total := 0
	for _, p := range w.parts {
		total += p.Len()
	}
	for len(w.parts) > 2 && (total > maxBytes || len(w.parts) > maxParts) {
		total -= w.parts[0].Len()
		w.parts = w.parts[1:]
	}
}

// Save writes what the [Window] of a running recorder has, as a whole recording that ends now.
// Calls under way are in it without an answer.
func (r *Recorder) Save(ctx context.Context, to Output) error {
	reply := make(chan [][]byte, 1)
	select {
	case r.saves <- reply:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, text := range <-reply {
		if _, err := to.Write(text); err != nil {
			return err
		}
	}
	return to.Flush()
}

// saved returns the texts of such a recording. Only Run calls it.
func (r *Recorder) saved() (texts [][]byte) {
	r.mu.Lock()
	length, pending := r.now(), r.unanswered()
	r.mu.Unlock()
	var tail bytes.Buffer
	_ = r.writeEnd(&tail, length, pending) // never fails
	header, _ := json.Marshal(r.header)
	texts = append(texts, append(header, '\n'))
	for _, p := range r.window.parts {
		texts = append(texts, p.Bytes())
	}
	return append(texts, tail.Bytes())
}
