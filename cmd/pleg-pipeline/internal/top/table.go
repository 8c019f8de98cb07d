package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gdamore/tcell/v3"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// column is a column of the table.
type column struct {
	title string
	width int
	value func(p *pod, now time.Time) string
	style func(p *pod) tcell.Style
}

// columns returns the columns that fit into a width: names grow first, then what happened
// last. The node is a column if there are many.
func columns(width int, nodes bool) []column {
	namespace, name := 9, 22
	if width > 90 {
		namespace, name = 12, min(22+(width-90)/2, 45)
	}
	fixed := []column{
		{"NAMESPACE", namespace, func(p *pod, _ time.Time) string { return p.Namespace }, always(faint)},
		{"POD", name, func(p *pod, _ time.Time) string { return orElse(p.Name, string(p.UID)) }, always(plain)},
		{"STATE", 10, func(p *pod, _ time.Time) string { return p.word() }, stateStyle},
		{"RUN", 5, running, always(plain)},
		{"RST", 4, func(p *pod, _ time.Time) string { return strconv.FormatUint(uint64(p.Restarts), 10) }, always(plain)},
		{"EV/M", 4, func(p *pod, _ time.Time) string { return strconv.Itoa(len(p.recent)) }, always(plain)},
		{"AGE", 4, func(p *pod, now time.Time) string { return p.age(now) }, always(faint)},
	}
	if nodes {
		fixed = withNode(fixed, width)
	}
	used := 0
	for _, c := range fixed {
		used += c.width + 1
	}
	return append(fixed, column{"LAST EVENT", max(0, width-used), lastColumn, func(p *pod) tcell.Style {
		if p.trouble() <= failed {
			return bad
		}
		return faint
	}})
}

// withNode puts the node before the other columns. On a narrow terminal it takes the place
// of the rates and ages.
func withNode(columns []column, width int) []column {
	if width <= 90 {
		columns = slices.DeleteFunc(columns, func(c column) bool { return c.title == "EV/M" || c.title == "AGE" })
	}
	node := func(p *pod, _ time.Time) string { return p.Node }
	return slices.Insert(columns, 0, column{"NODE", 12, node, always(faint)})
}

func always(s tcell.Style) func(*pod) tcell.Style { return func(*pod) tcell.Style { return s } }

func running(p *pod, _ time.Time) string {
	if p.Total == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", p.Running, p.Total)
}

// lastColumn returns why the pod cannot be inspected, or else its last event.
func lastColumn(p *pod, now time.Time) string {
	if complaint := p.complaint(now); complaint != "" {
		return complaint
	}
	if p.last == nil {
		return "-"
	}
	return strings.TrimSpace(container(*p.last) + " " + what(*p.last) + " " + why(*p.last))
}

func stateStyle(p *pod) tcell.Style {
	switch t := p.trouble(); {
	case t <= unknown:
		return bad
	case t == fine && p.State == view.Ready:
		return good
	}
	return warn
}

// drawPods draws the table into n lines.
func (v *painter) drawPods(m *model, y, n int, now time.Time) {
	titles := columns(v.width, m.nodes != nil)
	v.fill(y, header)
	x := 0
	for _, c := range titles {
		v.text(x, y, c.width, c.title, header)
		x += c.width + 1
	}
	m.scroll(n - 1)
	for i := range min(n-1, len(m.rows)-m.top) {
		p := m.rows[m.top+i]
		line := y + 1 + i
		selected := p.UID == m.selected
		if selected {
			v.fill(line, header)
		}
		x := 0
		for _, c := range titles {
			style := c.style(p)
			if selected {
				style = header
			}
			value := c.value(p, now)
			if c.title == "POD" || c.title == "NODE" { // both ends tell it from others
				value = cutMiddle(value, c.width)
			}
			v.text(x, line, c.width, value, style)
			x += c.width + 1
		}
	}
	if len(m.rows) == 0 && m.known {
		v.text(0, y+1, v.width, "no pod matches the filter", faint)
	}
}
