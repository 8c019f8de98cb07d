package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// begin decides where the connection begins. If it begins with the present state because messages are
// missing, it delivers the Gap.
func (w *watch) begin(ctx context.Context) (config jetstream.ConsumerConfig, err error) {
	info, err := w.stream.Info(ctx)
	if err != nil {
		return config, fmt.Errorf("stream %s: %w", w.name(), explain(w.js.Conn(), err))
	}
	config.FilterSubjects = w.subjects
	name := fmt.Sprintf("%016x", info.Created.UnixNano())
	first := w.nodes == nil
	if first {
		w.nodes = make(map[string]*progress)
		switch {
		case w.o.After != nil:
			w.at, _ = parsePlace(string(*w.o.After)) // the empty one is of no stream
		case w.o.Since.IsZero():
			w.coverAll(name, info)
		default:
			w.at = place{stream: name}
			config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &w.o.Since
			return config, nil
		}
	}
	state := first && w.o.Replay
	if !state {
		continues, err := w.continues(ctx, name, info)
		if err != nil {
			return config, err
		}
		if state = !continues; state {
			if err := w.announceGap("", message{data: data{Event: pleg.Event{Reason: pleg.HistoryTooShort}}}); err != nil {
				return config, err
			}
		}
	}
	if state {
		config.DeliverPolicy = jetstream.DeliverLastPerSubjectPolicy
		w.coverAll(name, info)
		return config, nil
	}
	config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, w.at.message+1
	if first && w.o.After != nil {
		w.owes = true
		w.mark, err = w.lastSequence(ctx, w.subjects)
	}
	if first && w.o.After == nil && w.o.Bookmarks {
		err = w.sendBookmark()
	}
	return config, err
}

// began finds out how far the present state goes, or the events since a time.
func (w *watch) began(ctx context.Context, policy jetstream.DeliverPolicy, info *jetstream.ConsumerInfo) (err error) {
	switch policy {
	case jetstream.DeliverLastPerSubjectPolicy:
		w.nodes, w.whole, w.broken, w.skipped = make(map[string]*progress), true, true, 0
		// The leader is asked after the consumer began: whatever was replaced before is older.
		if w.state, err = w.lastSequence(ctx, w.subjects); err != nil {
			return err
		}
		w.mark, w.owes, w.withheld = w.state, true, w.state
		if w.state > 0 {
			w.at = place{stream: w.at.stream} // the state is not in the order of what has happened
		}
	case jetstream.DeliverByStartTimePolicy:
		w.owes = true
		if w.mark, err = w.lastSequence(ctx, w.subjects); err != nil {
			return err
		}
		if info.NumPending == 0 {
			w.at.message = w.mark
		}
	default:
	}
	return w.deliverSynced()
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
	return cmp.Or(w.skipped, w.at.message+1) < info.State.FirstSeq
}

// continues reports whether the watch can go on with the stream. If that has another message in the
// place of the last one that was delivered, the servers have lost their last messages and got new
// ones.
func (w *watch) continues(ctx context.Context, name string, info *jetstream.StreamInfo) (bool, error) {
	if w.broken || w.at.stream != name || w.isRemoved(info) || w.at.message > info.State.LastSeq {
		return false, nil
	}
	if w.at.stored == 0 || w.at.message < info.State.FirstSeq {
		return true, nil
	}
	m, err := w.message(ctx, wanted{Sequence: w.at.message})
	return err == nil && (m == nil || m.Time.UnixNano() == w.at.stored), err // nil if it was removed
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
		return fmt.Errorf("stream %s: %w", w.name(), explain(w.js.Conn(), err))
	}
	if w.at.message >= max(w.state, 1) && w.isRemoved(info) {
		return errRemoved // the next connection begins with a Gap
	}
	w.skipped = 0
	last, err := w.lastSequence(asking, w.subjects)
	if err != nil || last > w.at.message {
		return err
	}
	w.checked = time.Now()
	if info.State.LastSeq > w.at.message {
		w.coverAll(w.at.stream, info)
	}
	if err := w.deliverSynced(); err != nil || !w.o.Bookmarks || w.owes {
		return err
	}
	return w.sendBookmark()
}
