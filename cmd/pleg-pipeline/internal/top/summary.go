package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// summaryLines is the number of lines above the table: two for the verdict, two for the
// figures.
const summaryLines = 4

// drawSummary draws the verdict and the figures of the stages.
func (v *painter) drawSummary(m *model, now time.Time) {
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
		took, age = view.Span(s.Relist.Took), age+" ago"
	}
	v.fields(2, [][2]string{
		{"list", age},
		{"took", took},
		{"period", view.Span(s.Relist.Period)},
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
func (v *painter) drawRate(x int, m *model) {
	x += v.text(x, 3, v.width-x, "events ", faint)
	x += v.text(x, 3, v.width-x, fmt.Sprintf("%.1f/s ", m.rate()), plain)
	v.drawSpark(x, 3, v.width-x, m.spark)
}

// drawSlots draws squares for the places of the inspector and returns the x after them.
func (v *painter) drawSlots(x int, s pleg.Status) int {
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
func overdue(s pleg.Status) (hung, slow int) {
	for _, i := range s.Overdue {
		if i.Hung {
			hung++
		}
	}
	return hung, len(s.Overdue) - hung
}

// drawSpark draws the newest values that fit.
func (v *painter) drawSpark(x, y, width int, values []int) {
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
