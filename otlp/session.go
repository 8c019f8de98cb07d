package otlp

import (
	"context"

	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// session is one subscription, from a position to the first error. Its goroutine owns it.
type session struct {
	e *Exporter

	// position and owesSynced become those of the exporter once the batch is settled.
	position   pleg.Position
	owesSynced bool
	// gap is the number that the Gap had whose replay is going on; nil if there is none.
	gap *pleg.Position
	// batch has the records of the next request, and size is what they need in it.
	batch []*logsv1.LogRecord
	size  int
}

// run exports the events until an error occurs or the channel is closed.
func (s *session) run(ctx context.Context, events <-chan pleg.Event) error {
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				return exporter.ErrSourceEnded
			}
			if err := s.exportAll(ctx, ev, events); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// exportAll exports an event and those that wait behind it, up to a request.
func (s *session) exportAll(ctx context.Context, ev pleg.Event, events <-chan pleg.Event) error {
	accept := func(ev pleg.Event) error { return s.accept(ctx, ev) }
	more := func() bool { return len(s.batch) < s.e.o.maxBatch }
	if err := exporter.Gather(ev, events, accept, more); err != nil {
		return err
	}
	return s.flush(ctx)
}

// accept adds an event to the batch. An error means that the session cannot go on after
// the events before it, which are exported first.
func (s *session) accept(ctx context.Context, ev pleg.Event) error {
	switch {
	case ev.Type == pleg.Bookmark:
		return nil
	case ev.Type == pleg.Gap:
		return s.acceptGap(ctx, ev)
	case ev.Type == pleg.Synced && !s.owesSynced:
		return nil
	case ev.Missed > 0:
		return s.overrun(ctx)
	case s.gap == nil && ev.Type != pleg.Synced:
		if ok, err := s.isNew(ctx, &ev); !ok {
			return err
		}
	}
	if err := s.add(ctx, newRecord(&ev)); err != nil {
		return err
	}
	if ev.Type == pleg.Synced {
		s.gap, s.owesSynced = nil, false
	}
	if s.gap == nil {
		s.position = pleg.Position{Epoch: ev.Epoch, Seq: ev.Seq}
	}
	return nil
}

// acceptGap adds a Gap. Until the replay that follows it is complete, no position can be
// resumed: if the session fails before, the next one begins with the same Gap.
func (s *session) acceptGap(ctx context.Context, ev pleg.Event) error {
	if err := s.add(ctx, newRecord(&ev)); err != nil {
		return err
	}
	s.e.metrics.gaps.Inc()
	if ev.Reason != pleg.Stopped {
		s.gap, s.owesSynced = &pleg.Position{Epoch: ev.Epoch, Seq: ev.Seq}, true
	}
	return nil
}

// isNew reports whether an event is new. If it does not follow the one before, that is an
// error, and the next session begins with the present state.
func (s *session) isNew(ctx context.Context, ev *pleg.Event) (bool, error) {
	ok, hole := exporter.IsNew(ev, s.position)
	if hole == nil {
		return ok, nil
	}
	if err := s.flush(ctx); err != nil {
		return false, err
	}
	s.e.acked = pleg.Position{Epoch: noEpoch}
	return false, hole
}

// overrun ends the session before a repair, because the events that it stands for are in
// the history. What was replayed is exported before, so the next session continues after
// the Gap that preceded it.
func (s *session) overrun(ctx context.Context) error {
	if err := s.flush(ctx); err != nil {
		return err
	}
	if s.gap != nil {
		s.e.acked = *s.gap
	}
	return exporter.ErrOverrun
}

// recordOverhead is more than a record needs in a request besides its own size.
const recordOverhead = 8

// add adds a record to the batch, after a flush if it does not fit.
func (s *session) add(ctx context.Context, r *logsv1.LogRecord) error {
	size := proto.Size(r) + recordOverhead
	if len(s.batch) == s.e.o.maxBatch || len(s.batch) > 0 && s.size+size > s.e.o.maxBatchBytes {
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	if len(s.batch) == 0 && s.e.waiting.Load() == nil {
		at := observedAt(r)
		s.e.waiting.Store(&at)
	}
	s.batch = append(s.batch, r)
	s.size += size
	return nil
}

// flush exports the batch. The exporter moves on once the receiver has accepted it, or has
// rejected it for good. A receiver that rejects one batch may reject the next one, too, so
// that flush then waits: the later events are safe in the history.
func (s *session) flush(ctx context.Context) error {
	if len(s.batch) == 0 {
		return nil
	}
	err := s.e.export(ctx, s.batch)
	if err != nil && !isPermanent(err) {
		return err
	}
	s.batch, s.size = nil, 0
	s.e.acked, s.e.owesSynced = s.position, s.owesSynced
	s.e.waiting.Store(nil)
	if err != nil {
		return s.e.loop.Pause(ctx, err, askedFor(err))
	}
	s.e.loop.Works(ctx)
	return nil
}
