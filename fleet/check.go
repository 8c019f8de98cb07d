package fleet

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// check finds out whether messages were removed before the watch had them. It also completes
// replays and delivers a bookmark.
func (w *watch) check(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	info, err := w.clearUp(ctx)
	if err != nil {
		return err
	}
	last, err := w.lastSequence(asking, EventStream, w.subjects...)
	if err != nil || last > w.covered {
		return err
	}
	if info.State.LastSeq > w.covered {
		w.coverAll(info)
	}
	if err := w.deliverSynced(); err != nil || !w.o.Bookmarks || len(w.pending) > 0 {
		return err
	}
	return w.send(Event{Event: pleg.Event{Type: pleg.Bookmark, ObservedAt: time.Now()}, At: w.position()})
}

// clearUp finds out whether messages were removed before the watch had them, which no later
// message of the same node may show. If so, it delivers a Gap and a replay.
func (w *watch) clearUp(ctx context.Context) (*jetstream.StreamInfo, error) {
	asking, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	info, err := w.stream.Info(asking)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", EventStream, explain(w.js.Conn(), err))
	}
	needs := cmp.Or(w.skipped, w.covered+1)
	w.skipped, w.checked = 0, time.Now()
	if needs >= info.State.FirstSeq {
		return info, nil
	}
	w.covered = max(w.covered, info.State.FirstSeq-1)
	if err := w.announceGap("", message{}, pleg.HistoryTooShort, 0); err != nil {
		return nil, err
	}
	return info, w.replayAll(ctx)
}
