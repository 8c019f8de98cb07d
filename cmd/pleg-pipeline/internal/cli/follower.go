package cli

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// follower prints the events of a source and tells of what happens to the
// connection.
type follower struct {
	out     console
	printer printer.Printer[pipeline.Event]
	marks   bool // whether to print them

	lost bool
	// last is the position behind what was printed. The epoch comes with the
	// first mark.
	last atomic.Pointer[client.Position]
}

func (f *follower) follow(ctx context.Context, from source, o client.WatchOptions) error {
	if err := f.printer.Start(); err != nil {
		return outputError(err)
	}
	o.Disconnected = func(err error, _ time.Duration) { f.disconnected(ctx, err) }
	for ev, err := range from.events(ctx, o) {
		if err != nil {
			return err
		}
		f.tell(ctx, ev)
		if f.wants(ev) {
			if err := f.printer.Print(ev); err != nil {
				return outputError(err)
			}
		}
		f.keep(ev)
	}
	return nil
}

// disconnected says so once, however many attempts to connect fail.
func (f *follower) disconnected(ctx context.Context, err error) {
	if f.lost {
		return
	}
	f.lost = true
	why := err.Error()
	if s, ok := status.FromError(err); ok {
		why = s.Message()
	}
	f.out.say(ctx, "lost the daemon (%s), waiting for it", why)
}

// tell says what the connection has come to.
func (f *follower) tell(ctx context.Context, ev pipeline.Event) {
	again := ""
	if f.lost {
		again = "the daemon is back: "
		f.lost = false
	}
	switch {
	case ev.Type == pipeline.Gap && ev.Missed > 0:
		f.out.say(ctx, "%s%d events of all pods were missed, the daemon no longer has them; the present state follows", again, ev.Missed)
	case ev.Type == pipeline.Gap && ev.Reason == pleg.OtherEpoch:
		f.out.say(ctx, "%swhat happened meanwhile is not known, it was restarted; the present state follows", again)
	case ev.Type == pipeline.Gap:
		f.out.say(ctx, "%sevents were missed, the daemon no longer has them; the present state follows", again)
	case again != "":
		f.out.say(ctx, "%snothing was missed", again)
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

// keep notes the position. Behind a PodSync for missed events others may be due
// that have lower numbers; a Gap comes before what it announces.
func (f *follower) keep(ev pipeline.Event) {
	if ev.Missed > 0 || ev.Type == pipeline.Gap {
		return
	}
	next := client.Position{Epoch: ev.Epoch, Seq: ev.Seq}
	if last := f.last.Load(); last != nil && next.Epoch == "" {
		next.Epoch = last.Epoch
	}
	f.last.Store(&next)
}
