package fleet

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// After a restart of the server a whole fleet comes back at once. What an agent knew
// before is then still true, except for what was not acknowledged. So it asks for that
// alone: to read the states of all its pods takes the server a consumer for each agent.

// maxRefusals is how often in a row the server may refuse what a session sends. After that,
// the next session reads everything again. A server with a backlog may answer a question with what
// it had before the last write, and then refuse the next one.
const maxRefusals = 3

// keep keeps a session that ended with err for the next attempt, if what it knows of the
// server may still be true.
func (p *Publisher) keep(s *session, err error) {
	if isRefused(err) {
		s.refusals++
	}
	p.kept = nil
	if s.last > 0 && s.gap == nil && !p.replay && s.refusals < maxRefusals && !errors.Is(err, errHeld) {
		p.kept = s
	}
}

// progress notes that the server has accepted something.
func (s *session) progress(ctx context.Context) {
	s.refusals = 0
	s.p.loop.Works(ctx)
}

// forget makes the session one that knows nothing of the server but its lease.
func (s *session) forget() {
	s.pods, s.revisions = make(map[pleg.PodUID]*podRecord), make(map[string]revision)
	s.node, s.refreshed = nodeState{}, time.Time{}
	s.last, s.refusals = 0, 0
	s.begun()
}

// begun makes the session one that has not published yet.
func (s *session) begun() {
	s.after, s.gap, s.batch, s.unsettled = nil, nil, nil, nil
	s.sent, s.currentAsOf = nil, time.Time{}
}

// resume brings up to date what the session knew of the server. It returns false if the
// last message of the node is neither the last one that was acknowledged nor the one that
// was under way then, or if the server lost what it had acknowledged.
func (s *session) resume(ctx context.Context) (bool, error) {
	last, published, err := s.lastPublished(ctx)
	if err != nil {
		return false, err
	}
	lost, err := s.isStateLost(ctx)
	if err != nil {
		return false, err
	}
	switch {
	case lost:
		s.p.log.WarnContext(ctx, "server lost states; publishing the present state")
		s.p.replay = true
		return false, nil
	case last != nil && last.Sequence == s.last:
	case last != nil && s.sent != nil && bytes.Equal(last.Data, s.sent):
		s.last, s.p.acked = last.Sequence, published
	default:
		return false, nil
	}
	if keys := slices.Collect(maps.Keys(s.unsettled)); len(keys) > 0 {
		for key, uid := range s.unsettled {
			delete(s.pods, uid)
			delete(s.revisions, key)
		}
		err := s.readNode(ctx, keys, func(e entry) error { s.readState(ctx, e); return nil })
		if err != nil {
			return false, err
		}
	}
	if s.p.replay {
		return false, nil
	}
	s.begun()
	acked := s.p.acked
	s.after = &acked
	return true, nil
}

// checkParts returns an error if the node is in another part now. Then the session knows nothing.
func (s *session) checkParts(ctx context.Context) error {
	parts, err := partsIn(ctx, s.js, EventStream)
	if err == nil && parts != s.parts {
		s.forget()
		err = errOtherParts
	}
	return err
}

// isStateLost reports whether the server no longer has states that it acknowledged to this
// session: by default it may lose the last two minutes in a power failure. It loses the last writes,
// so it has all if it has the newest, a value or a removal.
func (s *session) isStateLost(ctx context.Context) (bool, error) {
	s.forgetMarks()
	var newest string
	for key, r := range s.revisions {
		if r.sequence > s.revisions[newest].sequence {
			newest = key
		}
	}
	if newest == "" {
		return false, nil
	}
	m, err := s.message(ctx, s.stateStream(), wanted{Last: subjectOf(s.nameOf(StateBucket), newest)})
	if err != nil {
		return false, explain(s.p.o.Conn, err)
	}
	return m == nil || m.Sequence < s.revisions[newest].sequence, nil
}
