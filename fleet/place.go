package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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
	// stream is the name of the stream. One that was deleted and created again has another name.
	stream string
	// message is the sequence number of the last message whose events the watch delivered,
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

// covered is the sequence number up to which every event was delivered.
func (p place) covered() uint64 {
	if p.events > 0 {
		return p.message - 1
	}
	return p.message
}

// findPosition decides after which message the connection begins, and reports whether a replay
// is needed. If it is because messages are missing, it delivers the Gap.
func (w *watch) findPosition(ctx context.Context) (replay bool, err error) {
	info, err := w.stream.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", w.nameOf(EventStream), explain(w.js.Conn(), err))
	}
	name := fmt.Sprintf("%016x", info.Created.UnixNano())
	if w.nodes == nil { // the first connection
		w.nodes = make(map[string]*progress)
		if w.o.After == nil {
			w.coverAll(name, info)
			if w.o.Replay || !w.o.Bookmarks && w.parts == 1 { // those of several parts join their positions
				return w.o.Replay, nil
			}
			return false, w.sendBookmark()
		}
		w.at = w.o.After.in(w.part)
		if last, err := w.lastSequence(ctx, w.nameOf(EventStream), w.subjects...); err != nil {
			return false, err
		} else if w.at.stream == name {
			w.pending = append(w.pending, pending{at: last})
		}
	}
	if ok, err := w.continues(ctx, name, info); ok || err != nil {
		return false, cmp.Or(err, w.deliverSynced())
	}
	w.skipped = 0
	w.coverAll(name, info)
	return true, w.announceGap("", message{}, pleg.HistoryTooShort, 0)
}

// coverAll makes the watch begin after the last message of the stream.
func (w *watch) coverAll(name string, info *jetstream.StreamInfo) {
	w.at = place{stream: name, message: info.State.LastSeq}
	if w.at.message > 0 {
		w.at.stored = info.State.LastTime.UnixNano()
	}
}

// isRemoved reports whether the stream no longer has a message that the watch does not have.
func (w *watch) isRemoved(info *jetstream.StreamInfo) bool {
	return cmp.Or(w.skipped, w.at.covered()+1) < info.State.FirstSeq
}

// continues reports whether the watch can go on with the stream. If that has another message in the
// place of the last one that was delivered, the servers have lost their last messages and got new
// ones.
func (w *watch) continues(ctx context.Context, name string, info *jetstream.StreamInfo) (bool, error) {
	if w.broken || w.at.stream != name || w.isRemoved(info) || w.at.covered() > info.State.LastSeq {
		return false, nil
	}
	if w.at.stored == 0 || w.at.message < info.State.FirstSeq {
		return true, nil
	}
	m, err := w.message(ctx, w.nameOf(EventStream), wanted{Sequence: w.at.message})
	if err != nil {
		return false, fmt.Errorf("read message: %w", explain(w.js.Conn(), err))
	}
	return m == nil || m.Time.UnixNano() == w.at.stored, nil // nil if it was removed
}

// errRemoved means that messages were removed before the watch had them.
var errRemoved = errors.New("the stream no longer has what follows")

// check finds out whether messages were removed before the watch had them, which no later message
// of the same node may show. It also completes replays and delivers a bookmark.
func (w *watch) check(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	info, err := w.stream.Info(asking)
	if err != nil {
		return fmt.Errorf("stream %s: %w", w.nameOf(EventStream), explain(w.js.Conn(), err))
	}
	if w.isRemoved(info) {
		return errRemoved // the next connection begins with a Gap
	}
	w.skipped = 0
	last, err := w.lastSequence(ctx, w.nameOf(EventStream), w.subjects...)
	if err != nil || last > w.at.covered() {
		return err
	}
	w.checked = time.Now()
	if info.State.LastSeq > w.at.covered() {
		w.coverAll(w.at.stream, info)
	}
	if err := w.deliverSynced(); err != nil || !w.o.Bookmarks || len(w.pending) > 0 {
		return err
	}
	return w.sendBookmark()
}

func (w *watch) sendBookmark() error {
	return w.send(Event{Event: pleg.Event{Type: pleg.Bookmark, ObservedAt: time.Now()}, At: w.at.position()})
}
