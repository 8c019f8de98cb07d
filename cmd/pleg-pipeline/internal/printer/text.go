package printer

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

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

// Printable replaces what is not printable in a text from the runtime, which could
// otherwise move the cursor or break the line.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// The ANSI colors in use.
const red, green, yellow, faint = "31", "32", "33", "2"
