package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Position is a place in the stream of a cluster: text that [Watch] reads. A watch that resumes
// after the empty position gets a Gap and a replay.
type Position string

// ParsePosition returns an error if the text is not a position.
func ParsePosition(text string) (Position, error) {
	if _, err := parsePlace(text); err != nil {
		return "", fmt.Errorf("%q is not a position of a fleet: want STREAM:MESSAGE:STORED, such as 18a5b5b0c2a7e400:120:18a5b5b1d0a7e400", text)
	}
	return Position(text), nil
}

// place is a decoded position.
type place struct {
	// stream is the time at which the stream was created. If a stream was deleted and created
	// again, its time differs.
	stream int64
	// message is the sequence number of the last message that the watch has received.
	message uint64
	// stored is the time at which the server stored the message. It distinguishes the message from
	// another one with the same number, which exists if the server has lost its last messages.
	stored int64
}

func (p place) position() Position {
	return Position(fmt.Sprintf("%x:%d:%x", p.stream, p.message, p.stored))
}

func parsePlace(text string) (p place, err error) {
	_, err = fmt.Sscanf(text, "%x:%d:%x", &p.stream, &p.message, &p.stored)
	if err == nil && string(p.position()) != text {
		err = fmt.Errorf("want %s", p.position())
	}
	return p, err
}

// begin chooses the first message of a new connection. If it begins with the present state because
// messages are missing, it delivers the Gap.
func (w *watch) begin(ctx context.Context) (config jetstream.ConsumerConfig, err error) {
	info, err := w.info(ctx)
	if err != nil {
		return config, err
	}
	config.FilterSubjects = w.subjects
	w.end = place{info.Created.UnixNano(), info.State.LastSeq, info.State.LastTime.UnixNano()}
	if err := w.waitBehind(info); err != nil {
		return config, err
	}
	if w.at == (place{}) && !w.broken {
		w.owes = true
		switch {
		case w.o.Replay:
			return w.beginReplay(config), nil
		case !w.o.Since.IsZero():
			config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &w.o.Since
			return config, nil
		case w.o.After != nil:
			w.at, _ = parsePlace(string(*w.o.After)) // the empty id is of no stream
			w.start = w.at.message
		default:
			w.at, w.owes, w.start = w.end, false, w.end.message
			if w.o.Bookmarks {
				err = w.send(Event{Event: pleg.Event{Type: pleg.Bookmark, ObservedAt: time.Now()}, At: w.at.position()})
			}
		}
	}
	continues := false
	if err == nil {
		continues, err = w.continues(ctx, info)
	}
	if err != nil || continues {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, w.at.message+1
		return config, err
	}
	err = w.send(Event{Event: pleg.Event{Type: pleg.Gap, Reason: pleg.HistoryTooShort, ObservedAt: time.Now()}})
	return w.beginReplay(config), err
}

// beginReplay makes a connection begin with the present state of all nodes.
func (w *watch) beginReplay(config jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	w.nodes, w.seen, w.at, w.start, w.owes, w.broken = make(map[string]*progress), make(map[string]struct{}), place{}, 0, true, true
	config.DeliverPolicy = jetstream.DeliverLastPerSubjectPolicy
	return config
}

// continues reports whether the watch can go on with the stream. If another message is in the place
// of the last delivered one, the servers have lost their last messages and then stored others.
func (w *watch) continues(ctx context.Context, info *jetstream.StreamInfo) (bool, error) {
	if w.broken || w.at.stream != info.Created.UnixNano() || w.at.message+1 < info.State.FirstSeq || w.at.message > info.State.LastSeq {
		return false, nil
	}
	if w.at.message < max(1, info.State.FirstSeq) { // 0 before the first message
		return true, nil
	}
	bound, cancel := context.WithTimeout(ctx, w.timeout())
	defer cancel()
	m, err := w.stream.GetMsg(bound, w.at.message)
	switch {
	case err == nil:
		return m.Time.UnixNano() == w.at.stored, nil
	case errors.Is(err, jetstream.ErrMsgNotFound), errors.Is(err, nats.ErrBadHeaderMsg): // removed, or written by somebody else
		return w.nothingNewBefore(ctx)
	}
	return false, fmt.Errorf("read message: %w", explain(w.js.Conn(), err))
}

// nothingNewBefore reports whether no message before the position was stored after it: such a message has the number of
// one that the servers have lost.
func (w *watch) nothingNewBefore(ctx context.Context) (bool, error) {
	since := time.Unix(0, w.at.stored+1)
	later, err := w.consume(ctx, jetstream.ConsumerConfig{FilterSubjects: w.subjects, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since})
	if err != nil {
		return false, err
	}
	defer later.Stop()
	if later.left == 0 {
		return true, nil
	}
	m, err := later.wait(ctx)
	if m == nil {
		return false, cmp.Or(err, errBehind)
	}
	return m.Sequence > w.at.message || m.Time.Before(since), nil
}

// behindTime is how long a watch waits for a stream of several servers to contain again the messages that the watch
// has received. A server that is stopped, or has just become the leader, may be behind. Later the servers have lost
// it.
const behindTime = 15 * time.Second

// waitBehind returns an error if the stream may lack messages that the watch has received.
func (w *watch) waitBehind(info *jetstream.StreamInfo) error {
	if w.at.stream == w.end.stream && w.at.message > w.known.message {
		w.known = w.at
	}
	if w.known.stream != w.end.stream {
		w.known = place{stream: w.end.stream}
	}
	if w.end.message >= w.known.message || info.Config.Replicas < 2 {
		w.known.message, w.behindSince = min(w.known.message, w.end.message), time.Time{}
		return nil
	}
	if w.behindSince.IsZero() {
		w.behindSince = time.Now()
	}
	if time.Since(w.behindSince) > behindTime {
		w.known = w.end
		return nil
	}
	return errBehind
}
