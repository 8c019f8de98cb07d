package recording

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const eventsMethod = runtimeapi.RuntimeService_GetContainerEvents_FullMethodName

const (
	// queueLength is how many answers wait to be written: some seconds of a
	// burst of a thousand pods.
	queueLength = 16384
	// pendingAfter is the age at which a call without an answer is noted.
	pendingAfter = time.Second
)

// Output is where a recording is written. Flush hands on what Write has kept
// back.
type Output interface {
	io.Writer
	Flush() error
}

// Options configure a [Recorder].
type Options struct {
	// Program is the version to be named in the header.
	Program string
	// Redact replaces names, values and messages, see [Recorder].
	Redact bool
}

// Recorder writes what a runtime answers. [Recorder.DialOptions] taps the
// client; [Recorder.Run] writes. It is safe for concurrent use.
//
// A call waits while the writer is far behind, but never an event: if the output
// does not keep up with events, Run ends with an error, for a client that leaves
// events unread holds up the runtime.
//
// With Options.Redact every text is replaced by a word that stands for it in
// this recording alone, but: ids that are random numbers, well-known keys of
// labels and annotations, reasons of one word, and what the runtime calls itself.
// A field that a later CRI may add is replaced as well. Times, states, exit codes
// and all other numbers are left.
type Recorder struct {
	opts   Options
	out    Output
	queue  chan answer
	stop   chan struct{} // closed by Stop
	ended  chan struct{} // closed when Run has returned
	behind chan struct{} // has one value once the output has not kept up

	mu       sync.Mutex
	began    time.Time     // zero before the first call
	length   time.Duration // set by Stop
	streams  int
	inFlight map[*call]struct{}

	answers, events atomic.Int64
}

// NewRecorder returns a recorder that is yet to run.
func NewRecorder(out Output, o Options) *Recorder {
	return &Recorder{
		opts: o, out: out,
		queue:    make(chan answer, queueLength),
		stop:     make(chan struct{}),
		ended:    make(chan struct{}),
		behind:   make(chan struct{}, 1),
		inFlight: make(map[*call]struct{}),
	}
}

// Counts returns how many answers and events have been written.
func (r *Recorder) Counts() (answers, events int64) { return r.answers.Load(), r.events.Load() }

// Length returns for how long it has recorded; 0 before Stop.
func (r *Recorder) Length() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.length
}

// Stop ends the recording: what is answered later is not in it. It does not
// block, and may be called more than once.
func (r *Recorder) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.stop:
		return
	default:
	}
	if !r.began.IsZero() {
		r.length = time.Since(r.began)
	}
	close(r.stop)
}

// Run writes until Stop is called, and then what was answered before. It returns
// an error if the output fails or does not keep up; the client that is tapped
// works on. It is to be called once.
func (r *Recorder) Run() error {
	defer close(r.ended)
	e := newEncoder(r.out, r.opts)
	sweep := time.NewTicker(pendingAfter)
	defer sweep.Stop()
	for {
		var err error
		select {
		case a := <-r.queue:
			err = r.write(e, a)
		case <-sweep.C:
			err = r.notePending(e)
		case <-r.behind:
			err = errors.New("the output does not take answers as fast as the runtime gives them")
		case <-r.stop:
			if err := r.finish(e); err != nil {
				return fmt.Errorf("write recording: %w", err)
			}
			return nil
		}
		if err == nil && len(r.queue) == 0 {
			err = r.out.Flush()
		}
		if err != nil {
			return fmt.Errorf("write recording: %w", err)
		}
	}
}

func (r *Recorder) write(e *encoder, a answer) error {
	e.began = r.beginning()
	if err := e.write(a); err != nil {
		return err
	}
	if a.call == callEvents {
		if len(a.messages) > 0 {
			r.events.Add(1)
		}
		return nil
	}
	if !a.pending {
		r.answers.Add(1)
	}
	return nil
}

// finish writes what is left and the end.
func (r *Recorder) finish(e *encoder) error {
	for len(r.queue) > 0 {
		if err := r.write(e, <-r.queue); err != nil {
			return err
		}
	}
	if r.beginning().IsZero() {
		return r.out.Flush()
	}
	if err := r.notePending(e); err != nil {
		return err
	}
	if err := e.end(r.Length()); err != nil {
		return err
	}
	return r.out.Flush()
}

// notePending writes which calls have waited for long.
func (r *Recorder) notePending(e *encoder) error {
	r.mu.Lock()
	var pending []answer
	for c := range r.inFlight {
		if !c.noted && time.Since(r.began)-c.at >= pendingAfter {
			c.noted = true
			pending = append(pending, answer{call: c.name, request: c.request, at: c.at, pending: true})
		}
	}
	r.mu.Unlock()
	for _, a := range pending {
		if err := r.write(e, a); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recorder) beginning() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.began
}

// call is one under way.
type call struct {
	name     string
	request  any
	at       time.Duration
	messages [][]byte
	noted    bool
}

// begin notes a call. It returns nil if it is not to be recorded.
func (r *Recorder) begin(method string, request any) *call {
	name := path.Base(method)
	_, list := listKind(name)
	_, status := statusKind(name)
	if !list && !status && name != callVersion {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &call{name: name, request: request, at: r.offset()}
	r.inFlight[c] = struct{}{}
	return c
}

// asks notes the request of a stream.
func (r *Recorder) asks(c *call, request any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.request = request
}

// offset needs the lock.
func (r *Recorder) offset() time.Duration {
	if r.began.IsZero() {
		r.began = time.Now()
	}
	return time.Since(r.began)
}

// forget reports whether the call was still under way.
func (r *Recorder) forget(c *call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.inFlight[c]
	delete(r.inFlight, c)
	return ok
}

// end records how a call ended. A call that the client itself broke off says
// nothing about the runtime.
func (r *Recorder) end(c *call, err error) {
	if !r.forget(c) || status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled) {
		return
	}
	r.mu.Lock()
	a := answer{call: c.name, request: c.request, at: c.at, took: r.offset() - c.at, messages: c.messages, err: err}
	r.mu.Unlock()
	select {
	case <-r.stop: // it came too late, even if there is room
		return
	default:
	}
	select {
	case r.queue <- a:
	case <-r.stop:
	case <-r.ended:
	}
}

// event records a message of a stream of events, its opening or its end.
func (r *Recorder) event(a answer) {
	a.call = callEvents
	r.mu.Lock()
	a.at = r.offset()
	r.mu.Unlock()
	select {
	case <-r.stop:
	case <-r.ended:
	case r.queue <- a:
	default:
		select {
		case r.behind <- struct{}{}:
		default:
		}
	}
}
