package view

import (
	"strings"
	"unicode/utf8"
)

// gap is the number of spaces between two columns.
const gap = 2

// fit makes columns fit a terminal: it narrows those that have a minimum width, the widest
// first. The last column gets what is left, at least rest.
func fit[T any](columns []column[T], width, rest int) []column[T] {
	for total(columns)+rest > width {
		var widest *column[T]
		for i := range columns {
			if c := &columns[i]; c.least > 0 && c.width > c.least && (widest == nil || c.width > widest.width) {
				widest = c
			}
		}
		if widest == nil {
			break
		}
		widest.width--
	}
	return columns
}

// total returns the width of all columns but the last, with the gaps after them.
func total[T any](columns []column[T]) int {
	sum := 0
	for _, c := range columns[:len(columns)-1] {
		sum += c.width + gap
	}
	return sum
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
