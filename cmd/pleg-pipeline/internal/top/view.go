package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
)

// The colors are those of the terminal's own palette, which its user has chosen.
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

// minFeed is the least number of lines of the feed.
const minFeed = 3

// view draws a model.
type view struct {
	canvas
}

func newView(screen tcell.Screen) *view { return &view{canvas{screen: screen}} }

// draw draws the whole screen. The terminal gets only the cells that differ.
func (v *view) draw(m *model, now time.Time) {
	v.begin()
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

// summaryLines is the number of lines above the table: two for the verdict, two for the
// figures.
const summaryLines = 4

// drawSummary draws the verdict and the figures of the stages.
func (v *view) drawSummary(m *model, now time.Time) {
	text, ok := m.verdict(now)
	style := bad
	if ok {
		style = good.Bold(true)
	}
	clock := now.Format("15:04:05")
	first, second := wrap(clean(text), v.width-len(clock)-1)
	v.text(0, 0, v.width-len(clock)-1, first, style)
	v.text(0, 1, v.width, second, style)
	v.text(v.width-len(clock), 0, len(clock), clock, faint)

	if m.nodes != nil {
		v.drawNodes(m)
		return
	}
	s := m.status
	took, age := "-", since(s.Relist.Success, now)
	if !s.Relist.Success.IsZero() {
		took, age = span(s.Relist.Took), age+" ago"
	}
	v.fields(2, [][2]string{
		{"list", age},
		{"took", took},
		{"period", span(s.Relist.Period)},
		{"pods", strconv.Itoa(len(m.pods))},
		{"queue", strconv.Itoa(s.Waiting)},
		{"quarantined", strconv.Itoa(len(s.Quarantined))},
	})
	x := v.text(0, 3, v.width, "inspecting ", faint)
	x = v.drawSlots(x, s)
	x += v.text(x, 3, v.width-x, " "+placesText(s), plain)
	hung, slow := overdue(s)
	if hung > 0 {
		x += v.text(x, 3, v.width-x, fmt.Sprintf(", %d hung", hung), bad)
	}
	if slow > 0 {
		x += v.text(x, 3, v.width-x, fmt.Sprintf(", %d slow", slow), warn)
	}
	x += v.text(x, 3, v.width-x, "  ", plain)
	v.drawRate(x, m)
}

// drawRate draws the rate of events and the sparkline from x on.
func (v *view) drawRate(x int, m *model) {
	x += v.text(x, 3, v.width-x, "events ", faint)
	x += v.text(x, 3, v.width-x, fmt.Sprintf("%.1f/s ", m.rate()), plain)
	v.drawSpark(x, 3, v.width-x, m.spark)
}

// drawSlots draws squares for the places of the inspector and returns the x after them.
func (v *view) drawSlots(x int, s pipeline.Status) int {
	hung, slow := overdue(s)
	for n := range min(max(s.Width, s.InFlight), max(1, v.width/10), 16) {
		switch {
		case n < hung:
			x += v.text(x, 3, 1, "■", bad)
		case n < hung+slow:
			x += v.text(x, 3, 1, "■", warn)
		case n < s.InFlight:
			x += v.text(x, 3, 1, "■", info)
		default:
			x += v.text(x, 3, 1, "□", faint)
		}
	}
	return x
}

// overdue returns how many of the inspections in flight are hung, and how many only slow.
func overdue(s pipeline.Status) (hung, slow int) {
	for _, i := range s.Overdue {
		if i.Hung {
			hung++
		}
	}
	return hung, len(s.Overdue) - hung
}

// drawSpark draws the newest values that fit.
func (v *view) drawSpark(x, y, width int, values []int) {
	if width <= 0 {
		return
	}
	values = values[max(0, len(values)-width):]
	most := 1
	for _, n := range values {
		most = max(most, n)
	}
	levels := []rune(" ▁▂▃▄▅▆▇█")
	var bar strings.Builder
	for _, n := range values {
		bar.WriteRune(levels[(n*(len(levels)-1)+most-1)/most])
	}
	v.text(x, y, width, bar.String(), info)
}

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
	case t == fine && p.State == podview.Ready:
		return good
	}
	return warn
}

// drawPods draws the table into n lines.
func (v *view) drawPods(m *model, y, n int, now time.Time) {
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

// drawFeed draws the newest events, below a line.
func (v *view) drawFeed(m *model, y, n int) {
	title := "events"
	if m.paused {
		title = fmt.Sprintf("events: paused, %d new", m.missed)
	}
	v.rule(y, title)
	for i, ev := range m.events(n) {
		v.drawEvent(y+1+i, ev)
	}
}

func (v *view) drawEvent(y int, ev Event) {
	if ev.Type == pipeline.Gap {
		v.text(0, y, v.width, "GAP: events are missing; the pods are those of now", bad)
		return
	}
	x := v.text(0, y, 9, ev.ObservedAt.Local().Format("15:04:05"), faint) + 1
	v.text(x, y, 9, what(ev), eventStyle(ev))
	x += 10
	width := min(60, (v.width-x)*3/5)
	name := ev.PodNamespace + "/" + orElse(ev.PodName, string(ev.PodUID))
	if ev.Node != "" {
		name = ev.Node + " " + name
	}
	v.text(x, y, width, cutMiddle(name, width), plain)
	x += width + 1
	v.text(x, y, v.width-x, strings.TrimSpace(container(ev)+" "+why(ev)), faint)
}

func eventStyle(ev Event) tcell.Style {
	switch ev.Type {
	case pipeline.ContainerStarted:
		return good
	case pipeline.ContainerDied:
		if ev.Sandbox || ev.ExitCode != nil && *ev.ExitCode == 0 {
			return warn
		}
		return bad
	case pipeline.ContainerRemoved:
		return faint
	}
	return info
}

// drawKeys draws the last line: the keys, or the filter.
func (v *view) drawKeys(m *model) {
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
func (v *view) drawHelp(y int) {
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
