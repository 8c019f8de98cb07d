// Package printer writes events for people and for programs.
package printer

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Format is a way to write events.
type Format string

// The formats.
const (
	Text Format = "text"
	JSON Format = "json"
)

// Formats returns all formats, the default first.
func Formats() []Format { return []Format{Text, JSON} }

// Options configure a printer.
type Options struct {
	// Format is [Text] if empty.
	Format Format
	// Headers has the text begin with a line of column names.
	Headers bool
	// Color has the text coloured with ANSI sequences.
	Color bool
}

// Printer writes events one by one. It is not safe for concurrent use.
type Printer interface {
	// Start writes what comes before the first event.
	Start() error
	// Print writes one event with a single Write, so that a reader at the
	// other end of a pipe has the whole of it at once.
	Print(ev pleg.Event) error
}

// New returns a printer that writes to w without a buffer.
func New(w io.Writer, o Options) (Printer, error) {
	switch o.Format {
	case JSON:
		return &jsonPrinter{json.NewEncoder(w)}, nil
	case Text, "":
		return newText(w, o), nil
	}
	return nil, fmt.Errorf("output format %q is unknown", o.Format)
}

// jsonPrinter writes one object a line.
type jsonPrinter struct{ encoder *json.Encoder }

func (p *jsonPrinter) Start() error { return nil }

func (p *jsonPrinter) Print(ev pleg.Event) error { return p.encoder.Encode(ev) }
