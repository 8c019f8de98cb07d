package fleet

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// join makes one watch of those of several parts. The goroutine that ranges owns it. Each part has
// a goroutine of its own, which passes what it has through a channel.
type join struct {
	// one is the watch of a part, except for its number and its nodes.
	one watch
	// retries has one for each part. They go on when all begin again: what a part cannot read
	// must not make the others replay all the time.
	retries []*backoff.Backoff
	// at are the positions in the parts; empty in one that is not watched or has none.
	at []string
	// parts are those that are watched, with their nodes.
	parts map[int][]string
	// synced and marked have the times of the Synced and the Bookmark of each part. Those of
	// all parts become one.
	synced, marked map[int]time.Time
	// away are the parts that are disconnected.
	away map[int]bool
}

// errBeginAgain means that a part has a Gap about all its nodes. For the watch it is a Gap about
// all parts: all begin again with a replay.
var errBeginAgain = errors.New("a part is missing events")

func (j *join) run(ctx context.Context) error {
	for {
		err := j.watchAll(ctx)
		if !errors.Is(err, errBeginAgain) {
			return err
		}
		j.one.o.Replay, j.one.o.After = true, nil
	}
}

// watchAll watches the parts until an error occurs.
func (j *join) watchAll(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching, ctx := errgroup.WithContext(ctx)
	work := make(chan func() error)
	pass := func(do func() error) bool {
		select {
		case work <- do:
			return true
		case <-ctx.Done():
			return false
		}
	}
	j.at, j.parts = make([]string, j.one.parts), byPart(j.one.o.Nodes, j.one.parts)
	j.synced, j.marked = make(map[int]time.Time), make(map[int]time.Time)
	for number, nodes := range j.parts {
		w := j.watchOf(number, nodes, pass)
		watching.Go(func() error { return w.run(ctx) })
	}
	for {
		select {
		case do := <-work:
			if err := do(); err != nil {
				cancel()
				_ = watching.Wait()
				return err
			}
		case <-ctx.Done():
			return watching.Wait()
		}
	}
}

// watchOf returns the watch of a part. What it calls and delivers goes through pass.
func (j *join) watchOf(number int, nodes []string, pass func(do func() error) bool) *watch {
	w, o := j.one, j.one.o
	w.server = &server{part: part{number, w.parts}, js: w.js}
	w.o.Nodes, w.retries = nodes, j.retries[number]
	w.yield = func(ev Event, _ error) bool { return pass(func() error { return j.deliver(number, ev) }) }
	w.o.Disconnected = func(err error, retryIn time.Duration) {
		pass(func() error {
			j.away[number] = true
			if o.Disconnected != nil {
				o.Disconnected(w.explain(err), retryIn)
			}
			return nil
		})
	}
	w.o.Connected = func() {
		pass(func() error {
			if delete(j.away, number); len(j.away) == 0 && o.Connected != nil {
				o.Connected()
			}
			return nil
		})
	}
	if o.Unreadable != nil {
		w.o.Unreadable = func(err error) { pass(func() error { o.Unreadable(err); return nil }) }
	}
	return &w
}

// deliver delivers what a part has.
func (j *join) deliver(number int, ev Event) error {
	j.at[number] = string(ev.At)
	last := true
	switch {
	case ev.Type == pleg.Gap:
		delete(j.marked, number) // there is no position until the replay is complete
	case ev.Type == pleg.Bookmark:
		last = isLast(number, &ev, j.marked, len(j.parts)) && j.one.o.Bookmarks
	case ev.Type == pleg.Synced && ev.Node == "":
		last = isLast(number, &ev, j.synced, len(j.parts))
	}
	if !last {
		return nil
	}
	ev.At = j.position()
	if err := j.one.send(ev); err != nil {
		return err
	}
	if ev.Type == pleg.Gap && ev.Node == "" {
		return errBeginAgain
	}
	return nil
}

// isLast notes the time of a part's mark, and reports whether it is the last one of as many parts.
// Then it becomes the mark of all, with the time of the first.
func isLast(number int, mark *Event, times map[int]time.Time, parts int) bool {
	times[number] = mark.ObservedAt
	if len(times) < parts {
		return false
	}
	for _, t := range times {
		if t.Before(mark.ObservedAt) {
			mark.ObservedAt = t
		}
	}
	clear(times)
	return true
}

// position returns the position in all parts that are watched; empty if one has none.
func (j *join) position() Position {
	for number := range j.parts {
		if j.at[number] == "" {
			return ""
		}
	}
	return Position(strings.Join(j.at, ","))
}
