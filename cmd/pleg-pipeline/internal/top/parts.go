package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gdamore/tcell/v3"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// leastHeight is the least height of a terminal: a verdict of two lines, the advice, the figures and the keys.
	leastHeight = 6
	// minFeed is the least number of lines of the feed, leastPods that of the table beside it.
	minFeed, leastPods = 3, 2
	// lastWidth is the width for the last event of a pod. Names get the remaining width.
	lastWidth = 37
	// narrow is the width of a terminal without room for rates and ages beside nodes.
	narrow = 90
)

// columns returns the columns that fit into a width.
func (m *model) columns(width int, now time.Time) []view.Column[pod] {
	always := func(color string) func(*pod) string { return func(*pod) string { return color } }
	columns := []view.Column[pod]{
		{Name: "NODE", Width: 12, Value: func(p *pod) string { return p.Node }, Color: always(view.Faint)},
		{Name: "NAMESPACE", Width: 12, Least: 9, Value: func(p *pod) string { return p.Namespace }, Color: always(view.Faint)},
		{Name: "POD", Width: 45, Least: 22, Value: func(p *pod) string { return p.Label() }, Color: always("")},
		{Name: "STATE", Width: 10, Value: func(p *pod) string { return p.State }, Color: func(p *pod) string { return view.PodColor(&p.Pod) }},
		{Name: "RUN", Width: 5, Value: func(p *pod) string { return fmt.Sprintf("%d/%d", p.Running, p.Total) }, Color: always("")},
		{Name: "RST", Width: 4, Value: func(p *pod) string { return strconv.FormatUint(p.Restarts, 10) }, Color: always("")},
		{Name: "EV/M", Width: 4, Value: func(p *pod) string { return strconv.Itoa(len(p.recent)) }, Color: always("")},
		{Name: "AGE", Width: 4, Value: func(p *pod) string { return view.Ago(p.CreatedAt(), now) }, Color: always(view.Faint)},
		{Name: "LAST EVENT", Value: func(p *pod) string { return p.latest(now) }, Color: func(p *pod) string {
			if p.Finding != nil {
				return view.Red
			}
			return view.Faint
		}},
	}
	columns = slices.DeleteFunc(columns, func(c view.Column[pod]) bool {
		if m.state.Cluster == nil {
			return c.Name == "NODE"
		}
		return width <= narrow && (c.Name == "EV/M" || c.Name == "AGE")
	})
	view.Fit(columns, 1, width-lastWidth)
	columns[len(columns)-1].Width = width // the rest
	return columns
}

// drawPods draws the table into n lines.
func (s *screen) drawPods(m *model, y, n int, now time.Time) {
	if n < leastPods { // the keys are more important
		return
	}
	columns := m.columns(s.width, now)
	s.fill(y, header)
	s.row(y, columns, func(c *view.Column[pod]) (string, tcell.Style) { return c.Name, header })
	m.scroll(n - 1)
	for i := range min(n-1, len(m.rows)-m.top) {
		p := m.rows[m.top+i]
		s.row(y+1+i, columns, func(c *view.Column[pod]) (string, tcell.Style) { return c.Value(p), styles[c.Color(p)] })
	}
	switch {
	case !m.loaded || len(m.rows) > 0:
	case len(m.pods) > 0:
		s.text(0, y+1, s.width, "no pod matches the filter", faint)
	default:
		s.text(0, y+1, s.width, "no pods", faint)
	}
}

// row draws one line of the table. A name keeps both ends: they distinguish it.
func (s *screen) row(y int, columns []view.Column[pod], cell func(*view.Column[pod]) (string, tcell.Style)) {
	x := 0
	for i := range columns {
		value, style := cell(&columns[i])
		if i < len(columns)-1 {
			value = view.Cut(value, columns[i].Width)
		}
		s.text(x, y, columns[i].Width, value, style)
		x += columns[i].Width + 1
	}
}

// drawFeed draws the newest events, below a line.
func (s *screen) drawFeed(m *model, y, n int) {
	title := "events"
	if m.paused {
		title = fmt.Sprintf("events: paused, %d new", m.missed)
	}
	used := s.text(0, y, s.width, "── "+title+" ", faint)
	s.text(used, y, s.width-used, strings.Repeat("─", s.width-used), faint)
	for i, ev := range m.events(n) {
		s.drawEvent(y+1+i, ev)
	}
}

func (s *screen) drawEvent(y int, ev fleet.Event) {
	if ev.Type == pleg.Gap {
		s.text(0, y, s.width, strings.ToUpper(view.What(&ev))+": "+view.Why(&ev), bad)
		return
	}
	x := s.text(0, y, 9, ev.ObservedAt.Local().Format("15:04:05"), faint) + 1
	s.text(x, y, 9, view.What(&ev), styles[view.EventColor(&ev)])
	x += 10
	width := min(60, (s.width-x)*3/5)
	of := view.Pod{Node: ev.Node, Namespace: ev.PodNamespace, Name: ev.PodName, UID: ev.PodUID}
	s.text(x, y, width, view.Cut(of.FullName(), width), plain)
	x += width + 1
	s.text(x, y, s.width-x, strings.TrimSpace(view.ContainerName(&ev.Event)+" "+view.Why(&ev)), faint)
}
