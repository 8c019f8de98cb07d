package view

import (
	"strings"
	"unicode/utf8"
)

// Wrap breaks a text into lines of at most width columns, at its spaces. All lines but
// the first begin with indent. A word that is longer gets a line of its own. With a width
// of 0, the text stays one line. The result ends with a line break.
func Wrap(text string, width int, indent string) string {
	if width <= 0 {
		return text + "\n"
	}
	var b strings.Builder
	column, first := 0, true
	for word := range strings.SplitSeq(text, " ") {
		size := utf8.RuneCountInString(word)
		switch {
		case first:
			first = false
		case column+1+size > width:
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
