package cli

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// follower prints the events of a source and reports the state of the connection.
type follower struct {
	out     console
	printer printer.Printer[pipeline.Event]
	marks   bool // whether to print them

	disconnected bool
	// last is the position of the last event printed.
	last atomic.Pointer[client.Position]
}

func (f *follower) follow(ctx context.Context, from source, o client.WatchOptions) error {
	if err := f.printer.Start(); err != nil {
		return outputError(err)
	}
	return f.each(ctx, from, o, func(ev pipeline.Event) error {
		if f.wants(ev) {
			if err := f.printer.Print(ev); err != nil {
				return outputError(err)
			}
		}
		if wire.CanResumeAfter(ev) {
			f.last.Store(f.positionOf(ev))
		}
		return nil
	})
}

// each calls handle for each event until ctx ends or an error occurs, and reports
// what happens to the connection.
func (f *follower) each(ctx context.Context, from source, o client.WatchOptions, handle func(pipeline.Event) error) error {
	o.Disconnected = func(err error, _ time.Duration) { f.sayDisconnected(ctx, err) }
	for ev, err := range from.events(ctx, o) {
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
	if f.disconnected {
		return
	}
	f.disconnected = true
	why := err.Error()
	if s, ok := status.FromError(err); ok {
		why = s.Message()
	}
	f.out.say(ctx, "disconnected from the daemon (%s); waiting for it", why)
}

// sayConnected prints a notice if ev is a Gap or the first event of a new
// connection.
func (f *follower) sayConnected(ctx context.Context, ev pipeline.Event) {
	prefix := ""
	if f.disconnected {
		prefix = "reconnected to the daemon: "
		f.disconnected = false
	}
	switch {
	case ev.Type == pipeline.Gap && ev.Missed > 0:
		f.out.say(ctx, "%s%d events (of all pods) are missing because the daemon no longer has them; the current state follows", prefix, ev.Missed)
	case ev.Type == pipeline.Gap && ev.Reason == pleg.OtherEpoch:
		f.out.say(ctx, "%sevents are missing because the daemon was restarted; the current state follows", prefix)
	case ev.Type == pipeline.Gap:
		f.out.say(ctx, "%sevents are missing because the daemon no longer has them; the current state follows", prefix)
	case prefix != "":
		f.out.say(ctx, "%sno events are missing", prefix)
	}
}

func (f *follower) wants(ev pipeline.Event) bool {
	switch ev.Type {
	case pipeline.Bookmark:
		return false
	case pipeline.Synced, pipeline.Gap:
		return f.marks
	default:
		return true
	}
}

// positionOf returns the position of an event. Only marks carry the epoch, so other
// events have that of the mark before them.
func (f *follower) positionOf(ev pipeline.Event) *client.Position {
	position := &client.Position{Epoch: ev.Epoch, Seq: ev.Seq}
	if last := f.last.Load(); last != nil && position.Epoch == "" {
		position.Epoch = last.Epoch
	}
	return position
}
