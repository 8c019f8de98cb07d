package recording

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// queueLength is how many answers wait to be written: some seconds of a burst of a thousand
// pods.
const queueLength = 16384

var errBehind = errors.New("the output does not take answers as fast as the runtime gives them")

// Output receives a recording. Flush passes on the data that Write has buffered.
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
}

// Recorder writes the answers of a runtime. Its [Tap] goes into the client; [Recorder.Run] writes.
type Recorder struct {
	*Tap
	out     Output
	options Options

	answers int // written by Run
}

// NewRecorder returns a recorder for one call of Run.
func NewRecorder(out Output, o Options) *Recorder {
	return &Recorder{Tap: newTap(queueLength), out: out, options: o}
}

// Totals returns how many answers and errors have been written, and the time until Stop.
// Call it after Run has returned.
func (r *Recorder) Totals() (answers int, length time.Duration) { return r.answers, r.length }

// Run writes until Stop is called, and then all earlier answers. It returns an
// error if the output fails or does not keep up; the tapped client continues.
func (r *Recorder) Run() error {
	defer r.Stop()
	if err := r.run(); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	return nil
}

func (r *Recorder) run() error {
	e, w := newEncoder(r.options.Redact), newWriter(r.out)
	if err := w.write(newHeader(r.began, r.options)); err != nil {
		return err
	}
	for c := range r.queue {
		if r.behind.Load() {
			return errBehind
		}
		if err := w.write(e.line(c)); err != nil {
			return err
		}
		r.answers++
		if len(r.queue) > 0 {
			continue
		}
		if err := r.out.Flush(); err != nil {
			return err
		}
	}
	return errors.Join(w.write(line{At: offset(r.length), End: true}), r.out.Flush())
}
