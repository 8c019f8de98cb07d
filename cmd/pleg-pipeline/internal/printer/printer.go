// Package printer prints events and pods for people and for programs.
package printer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"strings"
	"text/template"
	"unicode/utf8"

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
		return &jsonPrinter[T]{json.NewEncoder(JSONWriter(w))}
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

// idWidth is the length of the ids that crictl prints.
const idWidth = 13

// column is one column of the text. Values come one by one, so a column starts with
// a usual width and becomes wider, permanently, if a value is longer. No value is
// cut.
type column[T any] struct {
	name  string
	width int
	value func(v *T) string
	// color returns the ANSI color of a value. If nil, it has none.
	color func(v *T) string
}

type textPrinter[T any] struct {
	w       io.Writer
	options Options
	columns []column[T]
	line    bytes.Buffer
}

func (p *textPrinter[T]) Start() error {
	if !p.options.Headers {
		return nil
	}
	for _, c := range p.columns {
		p.cell(c.name, c.width, "")
	}
	return p.flush()
}

func (p *textPrinter[T]) Print(v T) error {
	for i := range p.columns {
		c := &p.columns[i]
		value := Printable(c.value(&v))
		c.width = max(c.width, utf8.RuneCountInString(value))
		color := ""
		if p.options.Color && c.color != nil {
			color = c.color(&v)
		}
		p.cell(value, c.width, color)
	}
	return p.flush()
}

func (p *textPrinter[T]) cell(value string, width int, color string) {
	if color != "" {
		p.line.WriteString("\x1b[" + color + "m")
	}
	p.line.WriteString(value)
	if color != "" {
		p.line.WriteString("\x1b[0m")
	}
	p.line.WriteString(strings.Repeat(" ", max(0, width-utf8.RuneCountInString(value))+2))
}

func (p *textPrinter[T]) flush() error {
	line := append(bytes.TrimRight(p.line.Bytes(), " "), '\n')
	_, err := p.w.Write(line)
	p.line.Reset()
	return err
}

func shortID(id string) string {
	if len(id) > idWidth {
		return id[:idWidth]
	}
	return cmp.Or(id, "-")
}

// The ANSI colors in use.
const red, green, yellow, faint = "31", "32", "33", "2"
