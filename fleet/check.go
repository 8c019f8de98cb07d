package fleet

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// check finds out whether messages were removed before the watch had them, which no later message
// of the same node may show. If so, it delivers a Gap and a replay. It also completes replays and
// delivers a bookmark.
func (w *watch) check(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	info, err := w.stream.Info(asking)
	if err != nil {
		return fmt.Errorf("stream %s: %w", w.nameOf(EventStream), explain(w.js.Conn(), err))
	}
	needs := cmp.Or(w.skipped, w.covered+1)
	w.skipped = 0
	if needs < info.State.FirstSeq {
		w.covered = max(w.covered, info.State.FirstSeq-1)
		if err := w.announceGap("", message{}, pleg.HistoryTooShort, 0); err != nil {
			return err
		}
		if err := w.replayAll(ctx); err != nil {
			return err
		}
	}
	last, err := w.lastSequence(ctx, w.nameOf(EventStream), w.subjects...)
	if err != nil || last > w.covered {
		return err
	}
	w.checked = time.Now()
	if info.State.LastSeq > w.covered {
		w.coverAll(info)
	}
	if err := w.deliverSynced(); err != nil || !w.o.Bookmarks || len(w.pending) > 0 {
		return err
	}
	return w.sendBookmark()
}

func (w *watch) sendBookmark() error {
	return w.send(Event{Event: pleg.Event{Type: pleg.Bookmark, ObservedAt: time.Now()}, At: w.position()})
}
