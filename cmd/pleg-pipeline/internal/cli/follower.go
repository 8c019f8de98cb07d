package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxReplayed and maxReplayedBytes limit the present state that a daemon sends, in pods and
// bytes of text.
const (
	maxReplayed      = 100_000
	maxReplayedBytes = 256 << 20
)

// errTooManyPods means that the daemon has more pods than a node can have.
var errTooManyPods = fmt.Errorf("the daemon sends more than %d pods or %d bytes", maxReplayed, maxReplayedBytes)

// position returns the position after an event; "" if it has none.
func position(ev fleet.Event) string {
	if ev.At != "" {
		return string(ev.At)
	}
	if at, ok := ev.Position(); ok && ev.Node == "" {
		return at.String()
	}
	return ""
}

// follower passes the events of a source on and reports the state of the connection.
type follower struct {
	out     console
	server  string      // what the source connects to
	fleet   *fleetFlags // nil for a daemon
	filter  podFilter
	follow  bool // whether to continue after the earlier events
	marks   bool // whether to print them
	fromNow bool // no earlier events were requested

	disconnected bool
	// last is the last event with a position that was printed.
	last atomic.Pointer[fleet.Event]
}

func (f *follower) print(ctx context.Context, from source, o client.WatchOptions, printer *view.Printer[fleet.Event]) error {
	if err := printer.Start(); err != nil {
		return outputError(err)
	}
	err := f.each(ctx, from, o, func(ev fleet.Event) error {
		if !f.follow && ev.Type == pleg.Synced && ev.Node == "" {
			return errCaughtUp
		}
		if f.wants(ev) {
			if err := printer.Print(ev); err != nil {
				return outputError(err)
			}
		}
		if position(ev) != "" {
			f.last.Store(&ev)
		}
		return nil
	})
	if errors.Is(err, errCaughtUp) {
		return nil
	}
	return err
}

// errCaughtUp ends a follower that has printed the earlier events.
var errCaughtUp = errors.New("the earlier events are printed")

// silentAfter is how long a daemon may send nothing after it was asked for events.
const silentAfter = 10 * time.Second

// each calls handle for each event until ctx ends or an error occurs, and reports
// what happens to the connection.
func (f *follower) each(ctx context.Context, from source, o client.WatchOptions, handle func(fleet.Event) error) error {
	// Whatever it is asked, a daemon that knows its pods sends a mark at once.
	silent := time.AfterFunc(silentAfter, func() { f.out.say(ctx, "%s has sent nothing for %v; waiting for it", f.server, silentAfter) })
	defer silent.Stop()
	o.Disconnected = func(err error, _ time.Duration) {
		silent.Stop()
		f.sayDisconnected(ctx, err)
	}
	for ev, err := range from.Events(ctx, o) {
		silent.Stop()
		if err != nil {
			return err
		}
		f.sayConnected(ctx, ev)
		if err := handle(ev); err != nil {
			return err
		}
	}
	return nil
}

// sayDisconnected prints one notice, however many attempts to connect fail.
func (f *follower) sayDisconnected(ctx context.Context, err error) {
	if !f.disconnected {
		f.disconnected = true
		f.out.say(ctx, "disconnected from %s (%v); waiting for it", f.server, err)
	}
}

// sayConnected prints a notice if ev is a Gap, unless it is one of a node of a cluster, or
// the first event of a new connection.
func (f *follower) sayConnected(ctx context.Context, ev fleet.Event) {
	prefix := ""
	if f.disconnected && (f.fleet == nil || !f.fleet.away) {
		prefix = "reconnected to " + f.server + ": "
		f.disconnected = false
	}
	why := f.server + " no longer has them; the current state follows"
	switch ev.Reason {
	case pleg.Stopped:
		why = f.server + " ended before they were read"
	case pleg.OtherEpoch:
		why = f.server + " was restarted; the current state follows"
	}
	switch {
	case ev.Type == pleg.Gap && ev.Node == "" && ev.Missed > 0:
		f.out.say(ctx, "%s%d events (of all pods) are missing because %s", prefix, ev.Missed, why)
	case ev.Type == pleg.Gap && ev.Node == "":
		f.out.say(ctx, "%sevents are missing because %s", prefix, why)
	case prefix != "":
		f.out.say(ctx, "%sno events are missing", prefix)
	}
}

func (f *follower) wants(ev fleet.Event) bool {
	switch ev.Type {
	case pleg.Bookmark:
		return false
	case pleg.Synced:
		// A watch from now on begins with a Synced, which ends nothing.
		began := f.last.Load() != nil
		return f.marks && (began || !f.fromNow)
	case pleg.Gap:
		return f.marks
	default:
		return f.filter.wantsEvent(ev)
	}
}

// replay reads the present state until only pods that hang are missing. It returns the last
// event that has a position. If they are kept, last gets that of each pod.
func replay(ctx context.Context, from source, last map[pleg.PodUID]fleet.Event, keep bool) (latest fleet.Event, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o := client.WatchOptions{Name: Name + "-pods", Replay: true, Disconnected: func(err error, _ time.Duration) { cancel(err) }}
	replaying, stop := untilOnlyHung(ctx, from)
	defer stop()
	size := 0
	for ev, err := range from.Events(replaying, o) {
		if err != nil {
			if context.Cause(replaying) == nil {
				return latest, err
			}
			break
		}
		if position(ev) != "" {
			latest = ev
		}
		if ev.Type == pleg.Synced && ev.Node == "" {
			return latest, nil
		}
		if !keep {
			continue
		}
		last[ev.PodUID] = ev // sequence numbers only grow
		if size += textSize(ev); len(last) > maxReplayed || size > maxReplayedBytes {
			return latest, errTooManyPods
		}
	}
	if cause := context.Cause(replaying); !errors.Is(cause, errOnlyHung) {
		return latest, cmp.Or(cause, pleg.ErrStopped)
	}
	return latest, nil
}

// textSize returns the number of bytes of the text of an event.
func textSize(ev fleet.Event) int {
	return len(ev.Node) + len(ev.Epoch) + len(ev.PodUID) + len(ev.PodName) + len(ev.PodNamespace) + len(ev.ContainerID) + len(ev.ContainerName) + len(ev.Reason)
}
