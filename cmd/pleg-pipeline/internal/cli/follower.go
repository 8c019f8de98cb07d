package cli

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

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
	out    console
	server string      // what the source connects to
	fleet  *fleetFlags // nil for a daemon

	disconnected bool
}

// each calls handle for each event until ctx ends or an error occurs, and reports
// what happens to the connection.
func (f *follower) each(ctx context.Context, from source, o client.WatchOptions, handle func(fleet.Event) error) error {
	// A daemon that knows its pods sends a mark at once, whatever the watch asks for.
	first := startWait(ctx, f.out, from, f.server)
	defer first.end()
	disconnected := func(err error, _ time.Duration) {
		if f.fleet != nil {
			first.end()
		}
		if !f.disconnected { // one notice, however many attempts fail
			f.disconnected = true
			f.out.say(ctx, "waiting for %s: %v", f.server, err)
		}
	}
	for ev, err := range from.Events(ctx, o, disconnected) {
		first.end()
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

// sayConnected prints a notice if ev is a Gap, unless it is one of a node of a cluster, or
// the first event of a new connection.
func (f *follower) sayConnected(ctx context.Context, ev fleet.Event) {
	prefix := ""
	if f.disconnected {
		prefix = "connected to " + f.server + ": "
		f.disconnected = false
	}
	switch {
	case ev.Type == pleg.Gap && ev.Node == "":
		f.out.say(ctx, "%s%s", prefix, view.GapText(&ev))
	case prefix != "":
		f.out.say(ctx, "%sno events are missing", prefix)
	}
}

// errKnown ends the wait for the state of a daemon.
var errKnown = errors.New("all pods are known except those that hang")

// awaitState waits until a daemon knows all pods except those that hang, which the user
// wants to see at once.
func awaitState(ctx context.Context, from daemonSource) error {
	group, waiting := errgroup.WithContext(ctx)
	group.Go(func() error { return cmp.Or(fromDaemon(waiting, from.client.WaitSynced(waiting)), errKnown) })
	group.Go(func() error { return awaitOnlyHung(waiting, from) })
	if err := group.Wait(); !errors.Is(err, errKnown) {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

const hungPeriod = 500 * time.Millisecond

// awaitOnlyHung blocks until each pod that is not known yet hangs, or until ctx ends.
func awaitOnlyHung(ctx context.Context, from daemonSource) error {
	for {
		if err := backoff.Wait(ctx, hungPeriod); err != nil {
			return err
		}
		if now, err := from.Status(ctx); err != nil || onlyHung(now) {
			return cmp.Or(err, errKnown)
		}
	}
}

// onlyHung reports whether pods wait for their inspection and all of them hang.
func onlyHung(s pleg.Status) bool {
	_, hung := view.CountHung(s)
	return s.Waiting > 0 && s.Waiting <= hung
}
