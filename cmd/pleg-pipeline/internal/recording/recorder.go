package recording

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	// queueLength is how many answers wait to be written: some seconds of a burst
	// of a thousand pods.
	queueLength = 16384
	// pendingAfter is the age at which a call without an answer is part of the recording.
	pendingAfter = time.Second
)

var errBehind = errors.New("the output does not take answers as fast as the runtime gives them")

// Output is where a recording is written. Flush passes on what Write has buffered.
type Output interface {
	io.Writer
	Flush() error
}

// Options configure a [Recorder].
type Options struct {
	// Program is the program's version for the header.
	Program string
	// Redact replaces every text by a word that stands for it in this recording
	// alone, except: random ids, well-known keys of labels and annotations, reasons
	// of one word, and the runtime's name and version. Texts in fields that a later
	// CRI may add are replaced too. Numbers, such as times, states and exit codes,
	// stay.
	Redact bool
	Queue  int // how many answers may wait to be written; the default is 16384
}

// Recorder writes the answers of a runtime. [Recorder.DialOptions] taps the
// client; [Recorder.Run] writes. It is safe for concurrent use.
//
// The client never waits for the output: if that does not keep up, Run returns an
// error. If the output is a [Window], answers are left out instead.
type Recorder struct {
	out     Output
	window  *Window      // nil if out is something else
	header  Header       // of Run
	encoder *encoder     // of Run
	queue   chan *answer // closed by end
	saves   chan chan<- [][]byte

	mu       sync.Mutex
	began    time.Time // zero before the first call
	ended    bool
	err      error         // why it ended; nil for Stop
	length   time.Duration // set by end
	pending  []*answer     // set by end: the calls that have no answer
	streams  int
	inFlight map[*answer]struct{}

	answers, events int // written by Run
}

// answer is what the tap saw of a call, or of an event stream.
type answer struct {
	method   string
	request  proto.Message // nil of a stream, which asks for everything
	at, took time.Duration
	messages [][]byte
	err      error
	pending  bool // it has no answer
	stream   int
	ended    bool
}

// NewRecorder returns a recorder for one call of Run.
func NewRecorder(out Output, o Options) *Recorder {
	window, _ := out.(*Window)
	return &Recorder{
		out: out, window: window, encoder: newEncoder(o.Redact, window != nil),
		header: Header{Format: formatName, Version: formatVersion, Program: o.Program, Redacted: o.Redact},
		queue:  make(chan *answer, cmp.Or(o.Queue, queueLength)), saves: make(chan chan<- [][]byte),
		inFlight: make(map[*answer]struct{}),
	}
}

// Totals returns how many answers and events have been written, and the time from the
// first call to Stop. Call it after Run has returned.
func (r *Recorder) Totals() (answers, events int, length time.Duration) {
	return r.answers, r.events, r.length
}

// Stop ends the recording: later answers are not in it. It does not block, and
// may be called more than once.
func (r *Recorder) Stop() { r.stop(nil) }

func (r *Recorder) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(err)
}

// end ends the recording; the first call determines why. The caller holds the lock.
func (r *Recorder) end(err error) {
	if r.ended {
		return
	}
	r.ended, r.err = true, err
	if !r.began.IsZero() {
		r.length, r.pending = time.Since(r.began), r.unanswered()
	}
	close(r.queue)
}

// unanswered returns the calls under way that have waited for a second, and those for a status:
// a replay must not answer these as before. The caller holds the lock.
func (r *Recorder) unanswered() (pending []*answer) {
	for a := range r.inFlight {
		if isStatus := methods[a.method].list == ""; isStatus || r.now()-a.at >= pendingAfter {
			pending = append(pending, &answer{method: a.method, request: a.request, at: a.at, pending: true})
		}
	}
	return pending
}

// Run writes until Stop is called, and then all earlier answers. It returns an
// error if the output fails or does not keep up; the tapped client continues.
func (r *Recorder) Run() error {
	if err := r.run(); err != nil {
		r.stop(err)
		return fmt.Errorf("write recording: %w", err)
	}
	return nil
}

func (r *Recorder) run() error {
	for {
		select {
		case a, more := <-r.queue:
			if !more {
				return r.finish()
			}
			if err := r.write(a); err != nil {
				return err
			}
			if len(r.queue) > 0 {
				continue
			}
			if err := r.out.Flush(); err != nil {
				return err
			}
		case reply := <-r.saves:
			reply <- r.saved()
		}
	}
}

func (r *Recorder) finish() error {
	if r.err != nil || r.header.Began.IsZero() {
		return r.err
	}
	return errors.Join(r.writeEnd(r.out, r.length, r.pending), r.out.Flush())
}

// write writes an answer, and the header before the first.
func (r *Recorder) write(a *answer) error {
	if r.header.Began.IsZero() {
		r.mu.Lock()
		r.header.Began = r.began.Round(0)
		r.mu.Unlock()
		if r.window == nil {
			if err := writeLine(r.out, r.header); err != nil {
				return err
			}
		}
	}
	l := r.encoder.line(a)
	switch {
	case a.method == callEvents && len(a.messages) > 0:
		r.events++
	case a.method != callEvents && !a.pending:
		r.answers++
	}
	if err := writeLine(r.out, l); err != nil || r.window == nil || !r.window.isDue(l) {
		return err
	}
	var state bytes.Buffer
	for _, l := range r.encoder.state(a.at) {
		_ = writeLine(&state, l) // never fails
	}
	r.window.startPart(l.At, state.Bytes())
	return nil
}

// writeEnd writes the calls without an answer and the last line.
func (r *Recorder) writeEnd(out io.Writer, length time.Duration, pending []*answer) error {
	for _, a := range pending {
		if err := writeLine(out, r.encoder.line(a)); err != nil {
			return err
		}
	}
	return writeLine(out, line{At: offset(length), End: true})
}

// writeLine writes the header or a line.
func writeLine(out io.Writer, l any) error {
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	return lines.Encode(l)
}

// now returns the time since the first call. The caller holds the lock.
func (r *Recorder) now() time.Duration {
	if r.began.IsZero() {
		r.began = time.Now()
	}
	return time.Since(r.began)
}

// startCall returns the answer of a call, to be filled in.
func (r *Recorder) startCall(method string, request proto.Message) *answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &answer{method: method, request: request, at: r.now()}
	r.inFlight[a] = struct{}{}
	return a
}

// addMessage adds a message to an answer, unless the call has ended.
func (r *Recorder) addMessage(a *answer, message []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.inFlight[a]; ok {
		a.messages = append(a.messages, message)
	}
}

// finishCall records the end of a call. A call that the client cancelled soon is left
// out: that says nothing about the runtime.
func (r *Recorder) finishCall(a *answer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inFlight, a)
	a.took = r.now() - a.at
	if status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled) {
		if a.took < pendingAfter {
			return
		}
		a.pending, a.took, err = true, 0, nil
	}
	a.err = err
	r.enqueue(a)
}

// recordEvent records a message of an event stream, its opening or its end.
func (r *Recorder) recordEvent(a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.method, a.at = callEvents, r.now()
	r.enqueue(&a)
}

// enqueue needs the lock.
func (r *Recorder) enqueue(a *answer) {
	if r.ended {
		return
	}
	select {
	case r.queue <- a:
	default:
		if r.window == nil {
			r.end(errBehind)
		}
	}
}
