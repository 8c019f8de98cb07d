package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// redrawPeriod is the time after which ages are redrawn.
	redrawPeriod = time.Second
	// redrawPause is the shortest time between two drawings, whatever happens.
	redrawPause = 200 * time.Millisecond
	// maxReading is the part of the time that may be spent reading all pods, 1/maxReading.
	maxReading = 5
)

// redraws reports whether --watch redraws a table instead of printing rows.
func (c *podsCommand) redraws() bool {
	kind := c.output.format.Kind()
	return kind == view.Text && terminalWidth(c.process.Out) > 0
}

// redraw draws the table again after each event and each second, because ages grow and
// a pod that hangs has no events.
func (c *podsCommand) redraw(ctx context.Context, out console, from source, now currentState) error {
	last := make(map[pleg.PodUID]pleg.Event)
	for _, pod := range now.pods {
		if pod.LastEvent != nil {
			last[pod.UID] = *pod.LastEvent
		}
	}
	events := make(chan pleg.Event)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(events)
		f := follower{out: out}
		return f.each(ctx, from, client.WatchOptions{Name: Name + "-pods", After: now.at}, func(ev pleg.Event) error {
			select {
			case events <- ev:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	group.Go(func() error { return c.drawTables(ctx, from.pods, now.pods, last, events) })
	return group.Wait()
}

// drawTables draws what read returns. last has the last event of each pod; it is nil if
// read returns those too.
func (c *podsCommand) drawTables(
	ctx context.Context, read func(context.Context) ([]view.Pod, error), pods []view.Pod,
	last map[pleg.PodUID]pleg.Event, events <-chan pleg.Event,
) error {
	pause := redrawPause
	table := &table{out: c.process.Out}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for drawn := time.Now(); ; {
		select {
		case ev, ok := <-events:
			if !ok {
				return nil
			}
			if ev.PodUID != "" {
				if last != nil {
					if len(last) == maxReplayed {
						clear(last)
					}
					last[ev.PodUID] = ev
				}
				timer.Reset(max(0, pause-time.Since(drawn)))
			}
			continue
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		began := time.Now()
		known, err := read(ctx)
		if err == nil { // else the ages of what is known grow
			pods = known
		}
		pause = max(redrawPause, maxReading*time.Since(began))
		shown := make(map[pleg.PodUID]pleg.Event, len(last))
		for i := range pods {
			if ev, ok := last[pods[i].UID]; ok {
				shown[ev.PodUID], pods[i] = ev, withEvent(pods[i], ev)
			}
		}
		if last != nil && err == nil {
			last = shown // the other pods are gone
		}
		rows := c.rows(pods)
		slices.SortStableFunc(rows, sickFirst) // the last lines may not fit
		if err := c.draw(table, rows); err != nil {
			return outputError(err)
		}
		drawn = time.Now()
		timer.Reset(max(redrawPeriod, pause))
	}
}

// sickFirst orders pods that cannot be inspected before the others.
func sickFirst(a, b view.Pod) int {
	rank := func(p view.Pod) int {
		if p.Sick() {
			return 0
		}
		return 1
	}
	return rank(a) - rank(b)
}

func (c *podsCommand) draw(t *table, rows []view.Pod) error {
	var text bytes.Buffer
	p := c.printer(&text)
	p.Fit(rows)
	if err := p.Start(); err != nil {
		return err
	}
	for _, pod := range rows {
		if err := p.Print(pod); err != nil {
			return err
		}
	}
	return t.draw(text.String())
}

// table is text that is drawn over its last version on a terminal.
type table struct {
	out   io.Writer
	lines int // of the last version
}

// draw writes the lines that fit into the terminal, in one write so that it does not
// flicker.
func (t *table) draw(text string) error {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	if _, height := terminalSize(t.out); height > 1 && len(lines) > height-1 {
		more := len(lines) - (height - 2)
		lines = append(lines[:height-2:height-2], fmt.Sprintf("(%d more lines)", more))
	}
	up := ""
	if t.lines > 0 {
		up = fmt.Sprintf("\x1b[%dA", t.lines)
	}
	t.lines = len(lines)
	_, err := io.WriteString(t.out, up+"\r\x1b[J"+strings.Join(lines, "")+"\n")
	return err
}
