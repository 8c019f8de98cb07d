package printer

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// idWidth is how much of an id crictl shows.
const idWidth = 13

// column is one column of the text. Values come one by one, so a column starts
// as wide as what is usual and grows for good when a longer value comes: lines
// shift seldom, and nothing is cut.
type column[T any] struct {
	name  string
	width int
	value func(v *T) string
	// color returns the ANSI colour of a value; nil for none.
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
		value := printable(c.value(&v))
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

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func shortID(id string) string {
	if len(id) > idWidth {
		return id[:idWidth]
	}
	return orDash(id)
}

// printable keeps what a runtime reports from moving the cursor or breaking
// the line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// The ANSI colours in use.
const red, green, yellow, faint = "31", "32", "33", "2"
