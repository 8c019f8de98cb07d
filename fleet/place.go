package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Position is a place in [EventStream], or in the streams of all parts with commas between them:
// text that [Watch] reads. A watch that resumes after the empty one gets a Gap and a replay.
type Position string

// ParsePosition returns an error if the text is not a position.
func ParsePosition(text string) (Position, error) {
	parts := strings.Split(text, ",")
	for _, part := range parts {
		if _, err := parsePlace(part); err != nil && (part != "" || len(parts) == 1) {
			return "", fmt.Errorf("%q is not a position of a fleet: want STREAM:MESSAGE, such as 18a5b5b0c2a7e400:120", text)
		}
	}
	return Position(text), nil
}

// in returns the position in one part; the zero value, which no stream has, if there is none.
func (p Position) in(of part) (at place) {
	if parts := strings.Split(string(p), ","); len(parts) == of.parts {
		at, _ = parsePlace(parts[of.number])
	}
	return at
}

// place is a position in one stream.
type place struct {
	// stream names the stream. One that was deleted and created again has another name.
	stream string
	// message is the sequence number of the last message of which the watch delivered events,
	// and events how many of them; 0 means all.
	message uint64
	events  int
	// stored is when the server stored the message, in nanoseconds since 1970; 0 if that is
	// not known. It tells the message from another one that has its number, because the
	// servers had lost their last messages.
	stored int64
}

// position returns STREAM:MESSAGE, +EVENTS unless that is 0, and @STORED in hexadecimal digits
// unless that is 0.
func (p place) position() Position {
	text := fmt.Sprintf("%s:%d", p.stream, p.message)
	if p.events > 0 {
		text += fmt.Sprintf("+%d", p.events)
	}
	if p.stored > 0 {
		text += fmt.Sprintf("@%x", p.stored)
	}
	return Position(text)
}

func parsePlace(text string) (place, error) {
	stream, at, ok := strings.Cut(text, ":")
	at, stored, timed := strings.Cut(at, "@")
	message, events, hasEvents := strings.Cut(at, "+")
	p := place{stream: stream}
	var err, errEvents, errStored error
	p.message, err = strconv.ParseUint(message, 10, 64)
	if hasEvents {
		p.events, errEvents = strconv.Atoi(events)
	}
	if timed {
		p.stored, errStored = strconv.ParseInt(stored, 16, 64)
	}
	if !ok || stream == "" || p.events < 0 || p.stored < 0 {
		err = strconv.ErrSyntax
	}
	return p, errors.Join(err, errEvents, errStored)
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
		after := w.o.After.in(w.part)
		w.name, w.covered, w.known = after.stream, after.message, after
		if after.events > 0 {
			w.resumed = after
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
	w.covered, w.known = info.State.LastSeq, place{}
	if w.covered > 0 {
		w.known = place{stream: w.name, message: w.covered, stored: info.State.LastTime.UnixNano()}
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
	if w.known.message == w.covered && w.covered > 0 {
		return w.known.position()
	}
	return place{stream: w.name, message: w.covered}.position()
}
