// Package view shows pods, events and stages, on the command line
// and over HTTP. The JSON forms are outputs of the program; a [Printer] also makes text
// for people.
package view

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// PrintOptions configure a [Printer].
type PrintOptions struct {
	Format Format
	// Headers makes text begin with a line of column names.
	Headers bool
	// Color colors text with ANSI sequences.
	Color bool
	// Width is the number of columns that a line of text must fit into. If zero, no
	// value is cut.
	Width int
	// Nodes makes the node a column of text.
	Nodes bool
}

// Printer prints values of one type, each with a single Write and without a buffer, so
// that the reader of a pipe gets it as a whole. It is not safe for concurrent use.
type Printer[T any] struct {
	w       io.Writer
	options PrintOptions
	columns []Column[T] // of text
	name    func(v *T) string
	line    bytes.Buffer
}

// EventPrinter returns a printer of events, which name a node if they are of a cluster.
func EventPrinter(w io.Writer, o PrintOptions) *Printer[fleet.Event] {
	return newPrinter(w, o, eventColumns(o), fullPodName)
}

// PodPrinter returns a printer of pods.
func PodPrinter(w io.Writer, o PrintOptions) *Printer[Pod] {
	return newPrinter(w, o, podColumns(o), func(p *Pod) string { return fullName(p.Namespace, p.Name, p.UID) })
}

func newPrinter[T any](w io.Writer, o PrintOptions, columns []Column[T], name func(*T) string) *Printer[T] {
	if o.Format == Wide {
		o.Width = 0
	}
	return &Printer[T]{w: w, options: o, columns: columns, name: name}
}

// Start prints the column names, if wanted. On a terminal each column of text gets the width that
// these values need.
func (p *Printer[T]) Start(values ...T) error {
	if !p.options.Format.hasColumns() {
		return nil
	}
	last, width := len(p.columns)-1, p.options.Width
	if width > 0 && len(values) > 0 {
		for i := range p.columns[:last] {
			c := &p.columns[i]
			c.Width = utf8.RuneCountInString(c.Name)
			for n := range values {
				c.Width = max(c.Width, utf8.RuneCountInString(c.Value(&values[n])))
			}
		}
		Fit(p.columns, gap, width)
	}
	if !p.options.Headers {
		return nil
	}
	for i, c := range p.columns {
		if i < last || width == 0 || total(p.columns, gap)+len(c.Name) <= width {
			p.cell(c.Name, c.Width, "")
		}
	}
	return p.flush()
}

// Print prints a value.
func (p *Printer[T]) Print(v T) error {
	switch p.options.Format {
	case JSON:
		if err := json.NewEncoder(JSONWriter(&p.line)).Encode(v); err != nil {
			return err
		}
	case Name:
		p.line.WriteString(Printable(p.name(&v)))
	default:
		p.text(&v)
	}
	return p.flush()
}

// text prints a row. A value that is longer than its column is cut on a terminal;
// elsewhere the column becomes wider, permanently.
func (p *Printer[T]) text(v *T) {
	last := len(p.columns) - 1
	for i := range p.columns[:last] {
		c := &p.columns[i]
		value := Printable(c.Value(v))
		if p.options.Width > 0 {
			value = Cut(value, c.Width)
		}
		c.Width = max(c.Width, utf8.RuneCountInString(value))
		p.cell(value, c.Width, p.color(c, v))
	}
	p.details(Printable(p.columns[last].Value(v)))
}

func (p *Printer[T]) color(c *Column[T], v *T) string {
	if !p.options.Color || c.Color == nil {
		return ""
	}
	return c.Color(v)
}

// indent begins a line that contains details only.
const indent = 4

// details adds the last column. If it does not fit into the terminal, it gets lines of its own: it
// names the problem.
func (p *Printer[T]) details(value string) {
	width := p.options.Width
	if width == 0 || value == "" || utf8.RuneCountInString(value) <= width-total(p.columns, gap) {
		p.cell(value, 0, "")
		return
	}
	for line := range strings.Lines(Wrap(value, width-indent, "")) {
		p.line.Truncate(len(bytes.TrimRight(p.line.Bytes(), " ")))
		p.line.WriteString("\n" + strings.Repeat(" ", indent))
		p.cell(Cut(strings.TrimSpace(line), width-indent), 0, "")
	}
}

func (p *Printer[T]) cell(value string, width int, color string) {
	if color != "" {
		p.line.WriteString("\x1b[" + color + "m")
	}
	p.line.WriteString(value)
	if color != "" {
		p.line.WriteString("\x1b[0m")
	}
	p.line.WriteString(strings.Repeat(" ", max(0, width-utf8.RuneCountInString(value))+gap))
}

// flush writes the lines of Print, each of them whole.
func (p *Printer[T]) flush() error {
	text := p.line.Bytes()
	if p.options.Format.hasColumns() {
		text = bytes.TrimRight(text, " ")
	}
	if p.options.Format != JSON {
		text = append(text, '\n')
	}
	_, err := p.w.Write(text)
	p.line.Reset()
	return err
}
