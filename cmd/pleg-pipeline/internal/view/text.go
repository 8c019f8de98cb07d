package view

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable replaces the unprintable characters of a text from the runtime, which could
// otherwise move the cursor or break the line.
func Printable(s string) string { return printable(s, "") }

// PrintableLines does the same but keeps line breaks.
func PrintableLines(s string) string { return printable(s, "\n") }

func printable(s, keep string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && !strings.ContainsRune(keep, r) {
			return '?'
		}
		return r
	}, s)
}

// EscapeJSON escapes characters that encoding/json leaves as they are although a terminal
// interprets them: DEL, the C1 controls, and characters that change the direction of text. The
// result means the same.
func EscapeJSON(text []byte) []byte {
	var escaped []byte
	copied := 0
	for i := 0; i < len(text); {
		if text[i] < 0x7f {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			escaped = fmt.Appendf(append(escaped, text[copied:i]...), `\u%04x`, r)
			copied = i + size
		}
		i += size
	}
	if copied == 0 {
		return text
	}
	return append(escaped, text[copied:]...)
}

// JSONWriter is a writer that applies [EscapeJSON] to each write, which must be a whole
// JSON text, as encoders write it.
func JSONWriter(w io.Writer) io.Writer { return jsonWriter{w} }

type jsonWriter struct{ io.Writer }

// Write implements [io.Writer].
func (w jsonWriter) Write(text []byte) (int, error) {
	if _, err := w.Writer.Write(EscapeJSON(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Cut shortens a text to a width by leaving out its middle: the beginning and the end of
// a name say most.
func Cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width <= 1 {
		return strings.Repeat("…", max(0, width))
	}
	runes := []rune(text)
	front := width / 2
	return string(runes[:front]) + "…" + string(runes[len(runes)-(width-1-front):])
}

// Wrap breaks a text into lines of at most width columns, at its spaces. All lines but
// the first begin with indent. A word that is longer gets a line of its own. With a width
// of 0, the text stays one line. The result ends with a line break.
func Wrap(text string, width int, indent string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Split(text, " ") {
		size := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case width > 0 && column+1+size > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += size
	}
	b.WriteByte('\n')
	return b.String()
}
