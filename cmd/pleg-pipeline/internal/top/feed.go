package top

import (
	"fmt"
	"strings"

	"github.com/gdamore/tcell/v3"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// minFeed is the least number of lines of the feed.
const minFeed = 3

// drawFeed draws the newest events, below a line.
func (v *painter) drawFeed(m *model, y, n int) {
	title := "events"
	if m.paused {
		title = fmt.Sprintf("events: paused, %d new", m.missed)
	}
	v.rule(y, title)
	for i, ev := range m.events(n) {
		v.drawEvent(y+1+i, ev)
	}
}

func (v *painter) drawEvent(y int, ev Event) {
	if ev.Type == pleg.Gap {
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
	switch ev.Severity() {
	case pleg.SeverityGood:
		return good
	case pleg.SeverityNotice:
		return warn
	case pleg.SeverityBad:
		return bad
	default:
		return faint
	}
}
