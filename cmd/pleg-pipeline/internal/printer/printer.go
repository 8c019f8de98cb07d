// Package printer prints events and pods for people and for programs.
package printer

import (
	"bytes"
	"encoding/json"
	"io"
	"text/template"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Options configure a printer.
type Options struct {
	Format Format
	// Headers makes text begin with a line of column names.
	Headers bool
	// Color colors text with ANSI sequences.
	Color bool
}

// Printer prints values of one type. It is not safe for concurrent use.
type Printer[T any] interface {
	// Start prints what precedes the first value.
	Start() error
	// Print prints a value with a single Write, so that the reader of a pipe
	// gets it as a whole.
	Print(T) error
}

// Events returns a printer of events that writes to w without a buffer.
func Events(w io.Writer, o Options) Printer[pleg.Event] {
	columns := eventColumns
	if o.Format.kind == Wide {
		columns = wideEventColumns
	}
	return newPrinter(w, o, columns())
}

// Pods returns a printer of pods that writes to w without a buffer.
func Pods(w io.Writer, o Options) Printer[podview.Pod] {
	columns := podColumns
	if o.Format.kind == Wide {
		columns = widePodColumns
	}
	return newPrinter(w, o, columns())
}

func newPrinter[T any](w io.Writer, o Options, columns []column[T]) Printer[T] {
	switch o.Format.kind {
	case JSON:
		return &jsonPrinter[T]{json.NewEncoder(w)}
	case Template:
		return &templatePrinter[T]{w: w, template: o.Format.template}
	default:
		return &textPrinter[T]{w: w, options: o, columns: columns}
	}
}

// jsonPrinter prints one object per line.
type jsonPrinter[T any] struct{ encoder *json.Encoder }

func (p *jsonPrinter[T]) Start() error { return nil }

func (p *jsonPrinter[T]) Print(v T) error { return p.encoder.Encode(v) }

// templatePrinter prints the output of a template for each value.
type templatePrinter[T any] struct {
	w        io.Writer
	template *template.Template
	line     bytes.Buffer
}

func (p *templatePrinter[T]) Start() error { return nil }

func (p *templatePrinter[T]) Print(v T) error {
	p.line.Reset()
	if err := p.template.Execute(&p.line, fields(v)); err != nil {
		return err
	}
	p.line.WriteByte('\n')
	_, err := p.w.Write(p.line.Bytes())
	return err
}
