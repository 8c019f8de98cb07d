package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v3"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// drawDetails draws one pod into n lines: its state, containers, sandboxes and events.
func (v *painter) drawDetails(p *pod, y, n int, now time.Time) {
	end := y + n
	v.rule(y, p.name())
	y++
	line := func(style tcell.Style, format string, args ...any) {
		if y < end {
			v.text(0, y, v.width, fmt.Sprintf(format, args...), style)
			y++
		}
	}
	line(stateStyle(p), "%s, %d of %d containers run, %d restarts", p.word(), p.Running, p.Total, p.Restarts)
	if complaint := p.complaint(now); complaint != "" {
		line(bad, "%s", complaint)
	}
	if p.Stale {
		line(warn, "what follows was so %s ago", since(p.CurrentAsOf, now))
	}
	line(faint, "UID %s  IP %s", p.UID, cmp.Or(strings.Join(p.IPs, ", "), "-"))
	line(bold, "%-24s %4s %-8s %6s  %s", "CONTAINER", "TRY", "STATE", "AGE", "EXIT")
	for _, c := range newestFirst(p.Containers) {
		line(containerStyle(c), "%-24s %4d %-8s %6s  %s", cutMiddle(clean(c.Name), 24), c.Attempt, c.State, containerAge(c, now), exit(c))
	}
	for _, s := range p.Sandboxes {
		line(faint, "%-24s %4d %-8s", "(sandbox)", s.Attempt, s.State)
	}
	if y < end {
		v.rule(y, "events")
		y++
	}
	for _, ev := range slices.Backward(p.events) {
		if y < end {
			v.drawEvent(y, ev)
			y++
		}
	}
}

// newestFirst returns containers by name, the newest of each name first.
func newestFirst(containers []view.Container) []view.Container {
	return slices.SortedFunc(slices.Values(containers), func(a, b view.Container) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Attempt, a.Attempt))
	})
}

func containerStyle(c view.Container) tcell.Style {
	switch {
	case c.State == "running":
		return plain
	case c.ExitCode != nil && *c.ExitCode != 0:
		return bad
	}
	return faint
}

// containerAge returns the time since the last change of a container.
func containerAge(c view.Container, now time.Time) string {
	at := cmp.Or(c.FinishedAt, c.StartedAt, c.CreatedAt)
	if at == nil {
		return "-"
	}
	return since(*at, now)
}

func exit(c view.Container) string {
	if c.ExitCode == nil {
		return ""
	}
	parts := []string{fmt.Sprint(*c.ExitCode), c.Reason, c.Message}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}
