package fleet

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// known is a message and when the server stored it, in nanoseconds since 1970; zero if the watch
// knows of none.
type known struct {
	message uint64
	stored  int64
}

// findPosition decides after which message the connection begins, and reports whether a replay
// is needed. If it is because messages are missing, it delivers the Gap.
func (w *watch) findPosition(ctx context.Context) (replay bool, err error) {
	info, err := w.stream.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", w.nameOf(EventStream), explain(w.js.Conn(), err))
	}
	name := fmt.Sprintf("%016x", info.Created.UnixNano())
	if w.fresh {
		w.fresh, w.name, w.nodes = false, name, make(map[string]*progress)
		w.coverAll(info)
		if w.o.After == nil {
			if w.o.Replay || !w.o.Bookmarks && w.part.parts == 1 { // those of several parts join their positions
				return w.o.Replay, nil
			}
			return false, w.sendBookmark()
		}
		w.name, w.covered, w.known = w.o.After.Stream, w.o.After.Message, known{w.o.After.Message, w.o.After.Stored}
		if w.o.After.Events > 0 {
			w.resumed = *w.o.After
			w.covered--
		}
		if last, err := w.lastSequence(ctx, w.nameOf(EventStream), w.subjects...); err != nil {
			return false, err
		} else if w.name == name {
			w.pending = append(w.pending, pending{at: last})
		}
	}
	if !w.broken && w.name == name && cmp.Or(w.skipped, w.covered+1) >= info.State.FirstSeq && w.covered <= info.State.LastSeq {
		if same, err := w.isSameStream(ctx, info); same || err != nil {
			return false, cmp.Or(err, w.deliverSynced())
		}
	}
	w.name, w.skipped = name, 0
	w.coverAll(info)
	return true, w.announceGap("", message{}, pleg.HistoryTooShort, 0)
}

// coverAll makes the watch begin after the last message of the stream.
func (w *watch) coverAll(info *jetstream.StreamInfo) {
	w.covered, w.known = info.State.LastSeq, known{}
	if w.covered > 0 {
		w.known = known{w.covered, info.State.LastTime.UnixNano()}
	}
}

// isSameStream reports whether the stream still has the last message that the watch knows. If it
// has another one in its place, the servers have lost their last messages and got new ones.
func (w *watch) isSameStream(ctx context.Context, info *jetstream.StreamInfo) (bool, error) {
	if w.known.stored == 0 || w.known.message < info.State.FirstSeq {
		return true, nil
	}
	m, err := w.message(ctx, w.nameOf(EventStream), wanted{Sequence: w.known.message})
	if err != nil {
		return false, fmt.Errorf("read message: %w", explain(w.js.Conn(), err))
	}
	return m == nil || m.Time.UnixNano() == w.known.stored, nil // nil if it was removed
}

// position returns the position after all messages that the watch covers.
func (w *watch) position() Position {
	p := Position{Stream: w.name, Message: w.covered}
	if w.known.message == w.covered {
		p.Stored = w.known.stored
	}
	return p
}
