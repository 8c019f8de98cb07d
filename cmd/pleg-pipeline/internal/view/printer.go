// Package view is what the program shows of pods, events and stages, on the command line
// and over HTTP. The JSON forms are outputs of the program; the printers also make text
// for people.
package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// PrintOptions configure a printer.
type PrintOptions struct {
	Format Format
	// Headers makes text begin with a line of column names.
	Headers bool
	// Color colors text with ANSI sequences.
	Color bool
	// Width is the number of columns that a line of text must fit into. If zero, no
	// value is cut.
	Width int
}

// Printer prints values of one type. It is not safe for concurrent use.
type Printer[T any] interface {
	// Fit makes the columns of text as wide as these values need. It is called before
	// Start, if at all.
	Fit([]T)
	// Start prints what precedes the first value.
	Start() error
	// Print prints a value with a single Write, so that the reader of a pipe
	// gets it as a whole.
	Print(T) error
}

// EventPrinter returns a printer of events that writes to w without a buffer.
func EventPrinter(w io.Writer, o PrintOptions) Printer[pleg.Event] {
	switch {
	case o.Format.kind == Wide:
		return newPrinter(w, o, wideEventColumns())
	case o.Width > 0 && o.Width < total(eventColumns())+detailsWidth:
		return newPrinter(w, o, fit(narrowEventColumns(), o.Width, detailsWidth))
	}
	return newPrinter(w, o, eventColumns())
}

// PodPrinter returns a printer of pods that writes to w without a buffer.
func PodPrinter(w io.Writer, o PrintOptions) Printer[Pod] {
	columns := podColumns()
	if o.Format.kind == Wide {
		columns = widePodColumns()
	}
	return newPrinter(w, o, columns)
}

func newPrinter[T any](w io.Writer, o PrintOptions, columns []column[T]) Printer[T] {
	switch o.Format.kind {
	case JSON:
		return &jsonPrinter[T]{json.NewEncoder(JSONWriter(w))}
	case YAML:
		return &yamlPrinter[T]{w}
	case Template:
		return &templatePrinter[T]{w: w, template: o.Format.template}
	default:
		if o.Format.kind == Wide {
			o.Width = 0
		}
		return &textPrinter[T]{w: w, options: o, columns: columns}
	}
}

// jsonPrinter prints one object per line.
type jsonPrinter[T any] struct{ encoder *json.Encoder }

func (*jsonPrinter[T]) Fit([]T) {}

func (p *jsonPrinter[T]) Start() error { return nil }

func (p *jsonPrinter[T]) Print(v T) error { return p.encoder.Encode(v) }

// templatePrinter prints the output of a template for each value.
type templatePrinter[T any] struct {
	w        io.Writer
	template *template.Template
	line     bytes.Buffer
}

func (*templatePrinter[T]) Fit([]T) {}

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
// a usual width. On a terminal, longer values are cut; elsewhere the column becomes
// wider, permanently.
type column[T any] struct {
	name  string
	width int
	value func(v *T) string
	// color returns the ANSI color of a value. If nil, it has none.
	color func(v *T) string
	// least is the width to which a terminal may narrow the column; 0 for not at all.
	least int
}

type textPrinter[T any] struct {
	w       io.Writer
	options PrintOptions
	columns []column[T]
	line    bytes.Buffer
}

func (p *textPrinter[T]) Fit(values []T) {
	if p.options.Width == 0 {
		return
	}
	last := len(p.columns) - 1
	for i := range p.columns[:last] {
		c := &p.columns[i]
		c.width = utf8.RuneCountInString(c.name)
		for n := range values {
			c.width = max(c.width, utf8.RuneCountInString(c.value(&values[n])))
		}
	}
	p.columns = fit(p.columns, p.options.Width, 0)
}

func (p *textPrinter[T]) Start() error {
	if !p.options.Headers {
		return nil
	}
	used := 0
	for i, c := range p.columns {
		if last := i == len(p.columns)-1; last && p.options.Width > 0 && used+len(c.name) > p.options.Width {
			break
		}
		p.cell(c.name, c.width, "")
		used += c.width + gap
	}
	return p.flush()
}

func (p *textPrinter[T]) Print(v T) error {
	last := len(p.columns) - 1
	for i := range p.columns[:last] {
		c := &p.columns[i]
		value := Printable(c.value(&v))
		if p.options.Width > 0 {
			value = Cut(value, c.width)
		}
		c.width = max(c.width, utf8.RuneCountInString(value))
		p.cell(value, c.width, p.colorOf(c, &v))
	}
	c := &p.columns[last]
	p.details(Printable(c.value(&v)), p.colorOf(c, &v))
	return p.flush()
}

func (p *textPrinter[T]) colorOf(c *column[T], v *T) string {
	if !p.options.Color || c.color == nil {
		return ""
	}
	return c.color(v)
}

// indent is that of details on a line of their own.
const indent = 4

// details adds the last column. If it does not fit into the terminal, it gets lines of
// its own: it says what is wrong.
func (p *textPrinter[T]) details(value, color string) {
	width, room := p.options.Width, p.options.Width-total(p.columns)
	switch {
	case width == 0 || utf8.RuneCountInString(value) <= room:
		p.cell(value, 0, color)
	default:
		for line := range strings.Lines(Wrap(value, width-indent, "")) {
			p.line.Truncate(len(bytes.TrimRight(p.line.Bytes(), " ")))
			p.line.WriteString("\n" + strings.Repeat(" ", indent))
			p.cell(Cut(strings.TrimSpace(line), width-indent), 0, color)
		}
	}
}

func (p *textPrinter[T]) cell(value string, width int, color string) {
	if color != "" {
		p.line.WriteString("\x1b[" + color + "m")
	}
	p.line.WriteString(value)
	if color != "" {
		p.line.WriteString("\x1b[0m")
	}
	p.line.WriteString(strings.Repeat(" ", max(0, width-utf8.RuneCountInString(value))+gap))
}

func (p *textPrinter[T]) flush() error {
	line := append(bytes.TrimRight(p.line.Bytes(), " "), '\n')
	_, err := p.w.Write(line)
	p.line.Reset()
	return err
}

// ShortID returns the first characters of an id, as crictl does, or - for none.
func ShortID(id string) string {
	if len(id) > idWidth {
		return id[:idWidth]
	}
	return cmp.Or(id, "-")
}

// The ANSI colors in use, for "\x1b[" + color + "m".
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Faint  = "2"
)
