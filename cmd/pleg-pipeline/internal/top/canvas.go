package top

import (
	"strings"

	"github.com/gdamore/tcell/v3"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// canvas writes texts into cells of a screen.
type canvas struct {
	screen        tcell.Screen
	width, height int
}

// clear clears the canvas.
func (c *canvas) clear() {
	c.width, c.height = c.screen.Size()
	c.screen.Clear()
}

// clean makes a text of the runtime harmless for a terminal.
func clean(s string) string { return view.Printable(s) }

// text writes a text into at most width cells and returns the number of cells that it
// took. A text that does not fit ends with "…".
func (c *canvas) text(x, y, width int, text string, style tcell.Style) int {
	if y < 0 || y >= c.height {
		return 0
	}
	width = min(width, c.width-x)
	used, last := 0, 0 // last is where the last character begins
	rest := clean(text)
	for rest != "" && used < width {
		next, cells := c.screen.Put(x+used, y, rest, style)
		if len(next) >= len(rest) {
			return used
		}
		last, rest = used, next
		used += cells
	}
	if rest == "" && used <= width {
		return used
	}
	for ; last < width-1; last++ { // a wide character
		c.screen.Put(x+last, y, " ", style)
	}
	if width > 0 {
		c.screen.Put(x+width-1, y, "…", style)
	}
	return max(0, width)
}

// fill gives a line a style.
func (c *canvas) fill(y int, style tcell.Style) {
	c.screen.FillArea(0, y, c.width, 1, ' ', style)
}

// rule draws a line with a title.
func (c *canvas) rule(y int, title string) {
	used := c.text(0, y, c.width, "── "+title+" ", faint)
	c.text(used, y, c.width-used, strings.Repeat("─", c.width-used), faint)
}

// fields writes pairs of a name and a value.
func (c *canvas) fields(y int, pairs [][2]string) {
	x := 0
	for _, p := range pairs {
		x += c.text(x, y, c.width-x, p[0], faint) + 1
		x += c.text(x, y, c.width-x, p[1], plain) + 2
	}
}

// wrap splits a text at the last space before a width. What it returns second is empty if
// the text fits.
func wrap(s string, width int) (first, second string) {
	runes := []rune(s)
	if len(runes) <= width {
		return s, ""
	}
	at := max(1, width)
	for i := at; i > at/2; i-- {
		if runes[i] == ' ' {
			at = i
			break
		}
	}
	return string(runes[:at]), strings.TrimSpace(string(runes[at:]))
}

// cutMiddle shortens a text to a number of characters.
func cutMiddle(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	if width < 3 {
		return string(runes[:max(0, width)])
	}
	head := width / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(width-1-head):])
}
