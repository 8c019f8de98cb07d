package top

import (
	"strconv"
	"strings"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// The colors are from the terminal's own palette.
var (
	plain  = tcell.StyleDefault
	bold   = plain.Bold(true)
	faint  = plain.Dim(true)
	good   = plain.Foreground(color.PaletteColor(2))
	warn   = plain.Foreground(color.PaletteColor(3))
	bad    = plain.Foreground(color.PaletteColor(1)).Bold(true)
	header = plain.Reverse(true)
)

// styles are by the colors of package view.
var styles = map[string]tcell.Style{"": plain, view.Faint: faint, view.Green: good, view.Yellow: warn, view.Red: bad}

// screen draws a model.
type screen struct {
	tcell.Screen

	width, height int
}

// draw draws the whole screen. The terminal gets only the cells that differ.
func (s *screen) draw(m *model, now time.Time) {
	s.width, s.height = s.Size()
	s.Clear()
	defer s.Show()
	if s.width < 20 || s.height < leastHeight {
		s.text(0, 0, s.width, "too small", bad)
		return
	}
	top := s.drawSummary(m, now)
	body := s.height - top - 1
	switch {
	case m.help:
		for i, line := range strings.Split(helpText, "\n") {
			s.text(0, top+i, s.width, line, plain)
		}
	default:
		feed := max(minFeed, body/4)
		if body < leastPods+1+feed { // pods are more important
			s.drawPods(m, top, body, now)
			break
		}
		s.drawPods(m, top, body-feed-1, now)
		s.drawFeed(m, s.height-feed-2, feed)
	}
	s.drawKeys(m)
}

// drawSummary draws the verdict, what to do, and the figures of the stages or of the nodes. It
// returns the number of lines.
func (s *screen) drawSummary(m *model, now time.Time) (y int) {
	text, advice, severity := m.verdict(now)
	style := map[verdict.Severity]tcell.Style{verdict.OK: good.Bold(true), verdict.Warning: warn.Bold(true), verdict.Problem: bad}[severity]
	clock := now.Format("15:04:05")
	width := s.width - len(clock) - 1
	first, rest, _ := strings.Cut(strings.TrimSuffix(view.Wrap(view.Printable(text), width, ""), "\n"), "\n")
	s.text(0, 0, width, first, style)
	s.text(width+1, 0, len(clock), clock, faint)
	y = 1
	if rest != "" {
		s.text(0, 1, s.width, strings.ReplaceAll(rest, "\n", " "), style)
		y++
	}
	if advice != "" {
		y += s.paragraph(y, max(1, s.height/8), "Do: "+advice)
	}
	figures := []field{{"events", strconv.Itoa(m.recentEvents()) + "/m"}}
	if cluster := m.state.Cluster; cluster != nil {
		found := 0
		for _, p := range m.pods {
			if p.Finding != nil {
				found++
			}
		}
		s.fields(y, append(cluster.Figures, field{"pods", strconv.Itoa(len(m.pods))}, field{"not inspected", strconv.Itoa(found)}))
	} else {
		s.fields(y, m.lists(now))
		figures = append([]field{{"inspecting", view.Slots(m.state.Status)}}, figures...)
	}
	s.fields(y+1, figures)
	return y + 2
}

// paragraph draws a text in a limited number of lines, and returns how many it used. If the text is
// longer, it ends with "…".
func (s *screen) paragraph(y, most int, text string) int {
	lines := strings.Split(strings.TrimSpace(view.Wrap(view.Printable(text), s.width, "")), "\n")
	if len(lines) > most {
		lines = append(lines[:most-1], strings.Join(lines[most-1:], " "))
	}
	for i, line := range lines {
		s.text(0, y+i, s.width, line, plain)
	}
	return len(lines)
}

type field = [2]string

func (m *model) lists(now time.Time) []field {
	relist, took, age := m.state.Status.Relist, "-", "-"
	if !relist.Success.IsZero() {
		took, age = verdict.Span(relist.Took), view.Ago(relist.Success, now)+" ago"
	}
	return []field{
		{"list", age},
		{"took", took},
		{"period", verdict.Span(relist.Period)},
		{"pods", strconv.Itoa(len(m.pods))},
		{"queue", strconv.Itoa(m.state.Status.Waiting)},
		{"quarantined", strconv.Itoa(len(m.state.Status.Quarantined))},
	}
}

// drawKeys draws the last line: the keys, or the filter.
func (s *screen) drawKeys(m *model) {
	y := s.height - 1
	if m.editing {
		x := s.text(0, y, s.width, "filter: ", bold)
		x += s.text(x, y, s.width-x-1, m.filter, plain)
		s.ShowCursor(x, y)
		return
	}
	s.HideCursor()
	keys := []field{{"/", "filter"}, {"s", "sort: " + m.sort}, {"p", "pause"}, {"↑↓", "scroll"}, {"?", "help"}, {"q", "quit"}}
	x := 0
	if m.filter != "" {
		x = s.text(0, y, s.width/3, "filter: "+m.filter, warn) + 2
	}
	for _, k := range keys {
		x += s.text(x, y, s.width-x, k[0], bold) + 1
		x += s.text(x, y, s.width-x, k[1], faint) + 2
	}
}

// text writes a text into at most width cells and returns the number of cells that it
// filled. A text that does not fit ends with "…".
func (s *screen) text(x, y, width int, text string, style tcell.Style) int {
	if y < 0 || y >= s.height {
		return 0
	}
	width = min(width, s.width-x)
	used, last := 0, 0 // last is the index at which the last character begins
	rest := view.Printable(text)
	for rest != "" && used < width {
		next, cells := s.Put(x+used, y, rest, style)
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
		s.Put(x+last, y, " ", style)
	}
	if width > 0 {
		s.Put(x+width-1, y, "…", style)
	}
	return max(0, width)
}

// fill gives a line a style.
func (s *screen) fill(y int, style tcell.Style) { s.FillArea(0, y, s.width, 1, ' ', style) }

// fields writes a line of fields.
func (s *screen) fields(y int, pairs []field) {
	x := 0
	for _, p := range pairs {
		x += s.text(x, y, s.width-x, p[0], faint) + 1
		x += s.text(x, y, s.width-x, p[1], plain) + 2
	}
}
