package top

import (
	"strings"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
)

// The colors are from the terminal's own palette, which its user has chosen.
var (
	plain  = tcell.StyleDefault
	bold   = plain.Bold(true)
	faint  = plain.Dim(true)
	good   = plain.Foreground(color.PaletteColor(2))
	warn   = plain.Foreground(color.PaletteColor(3))
	bad    = plain.Foreground(color.PaletteColor(1)).Bold(true)
	info   = plain.Foreground(color.PaletteColor(4))
	header = plain.Reverse(true)
)

// painter draws a model.
type painter struct {
	canvas
}

func newPainter(screen tcell.Screen) *painter { return &painter{canvas{screen: screen}} }

// draw draws the whole screen. The terminal gets only the cells that differ.
func (v *painter) draw(m *model, now time.Time) {
	v.clear()
	defer v.screen.Show()
	if v.width < 20 || v.height < 5 {
		v.text(0, 0, v.width, "too small", bad)
		return
	}
	v.drawSummary(m, now)
	body := v.height - summaryLines - 1
	switch {
	case m.help:
		v.drawHelp(summaryLines)
	case m.details != "" && m.pods[m.details] != nil:
		v.drawDetails(m.pods[m.details], summaryLines, body, now)
	default:
		feed := max(minFeed, body/4)
		v.drawPods(m, summaryLines, body-feed-1, now)
		v.drawFeed(m, v.height-feed-2, feed)
	}
	v.drawKeys(m)
}

// drawKeys draws the last line: the keys, or the filter.
func (v *painter) drawKeys(m *model) {
	y := v.height - 1
	if m.editing {
		x := v.text(0, y, v.width, "filter: ", bold)
		x += v.text(x, y, v.width-x-1, m.filter, plain)
		v.screen.ShowCursor(x, y)
		return
	}
	v.screen.HideCursor()
	order := m.sort.String()
	if m.reverse {
		order += ", reversed"
	}
	keys := [][2]string{{"/", "filter"}, {"s", "sort: " + order}, {"p", "pause"}, {"Enter", "details"}, {"?", "help"}, {"q", "quit"}}
	if m.details != "" {
		keys = [][2]string{{"Esc", "back"}, {"↑↓", "other pods"}, {"q", "quit"}}
	}
	x := 0
	if m.filter != "" {
		x = v.text(0, y, v.width/3, "filter: "+m.filter, warn) + 2
	}
	for _, k := range keys {
		x += v.text(x, y, v.width-x, k[0], bold) + 1
		x += v.text(x, y, v.width-x, k[1], faint) + 2
	}
}

// drawHelp explains the screen.
func (v *painter) drawHelp(y int) {
	for i, line := range strings.Split(helpText, "\n") {
		v.text(0, y+i, v.width, line, plain)
	}
}

const helpText = `
↑ ↓ PgUp PgDn Home End   select a pod
Enter   show its containers, exits, restarts and events
Esc     go back; clear the filter
/       filter: each word must be in the name, the state or a container
s, r    sort by trouble, events, restarts or name; reverse
p       pause the events
q       quit

The first line says what is wrong. Pods whose inspection hangs come first, then
those quarantined because it hung, those whose inspection failed, those that do
not run, then the busiest. EV/M are the events of the last minute, RST restarts.
■ is an inspection in flight, red if it hangs, □ a free place. Inspections that
hang or are slow hold up no others: those get extra places (8 of 8 + 6 extra).`
