package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// session is one time of publishing, from reading what the server has to the first
// error. Its goroutine owns it.
type session struct {
	*server

	p       *Publisher
	key     string // CLUSTER.NODE
	subject string
	encoder encoder
	// lease is the revision of this agent's value in AgentBucket, renewed when it was written, and
	// verdict the one in it.
	lease   uint64
	renewed time.Time
	verdict *Verdict
	// last is the sequence number of the node's last message in the stream; the
	// server refuses the next one if it is not.
	last uint64
	// after is the position from which the session resumes; nil for none.
	after       *pleg.Position
	currentAsOf time.Time

	pods map[pleg.PodUID]*podRecord
	// revisions are those of the keys of the node and its pods in StateBucket. The server
	// refuses a state if the revision is another.
	revisions map[string]revision
	// node is the value of the node's key, and refreshed when it and the states of all pods
	// were last written together.
	node      nodeState
	refreshed time.Time
	// reconnects counts those of the connection before the session began.
	reconnects uint64
	// gap is not nil while the present state is being replayed: it is to be published
	// before the next event.
	gap *pleg.Event
	// published is when the last message was acknowledged.
	published time.Time
	// batch has the events to be published next.
	batch []pleg.Event
	// unsettled are the pods of a batch that is not acknowledged: nobody knows whether
	// the server has their states of before or of after it.
	unsettled map[string]pleg.PodUID
	// sent is the message that is not acknowledged, and sentTo the position of its last event.
	sent   []byte
	sentTo pleg.Position
	// refusals is how often the server refused something since it accepted something.
	refusals int
}

// open makes this publisher the one of its node, and finds out what the node has published.
func (p *Publisher) open(ctx context.Context) (*session, error) {
	if p.server == nil {
		server, err := openNode(ctx, p.js, p.o.Node, &p.o.Limits)
		if err != nil {
			return nil, err
		}
		p.server = server
		if n := server.stream.CachedInfo().Config.Replicas; n < 3 && !p.owned {
			p.log.WarnContext(ctx, "fewer than 3 servers keep the events: a power failure may lose some", "replicas", n)
		}
	}
	s := p.kept
	if s == nil {
		s = &session{
			p: p, key: nodeKey(p.o.Cluster, p.o.Node), encoder: encoder{ceSource(p.o.Cluster, p.o.Node)},
		}
	}
	s.server, s.reconnects = p.server, p.o.Conn.Stats().Reconnects
	s.subject = s.eventSubject(p.o.Cluster, p.o.Node)
	if err := s.takeOver(ctx); err != nil {
		if !p.isAway(err) && !errors.Is(err, errHeld) && !errors.Is(err, errReplaced) {
			p.server = nil // the stream or a bucket may be gone
		}
		p.keep(s, err)
		return nil, err
	}
	if s.after == nil {
		s.gap = &pleg.Event{Type: pleg.Gap, Reason: pleg.OtherEpoch}
	}
	return s, nil
}

// isAway reports whether an error says nothing about what the server has.
func (p *Publisher) isAway(err error) bool {
	return !p.o.Conn.IsConnected() || isUnavailable(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, errReadTimeout)
}

// takeOver takes the lease and finds out what the node has published. The lease comes first,
// so that an agent that is being replaced publishes nothing after this one has read.
func (s *session) takeOver(ctx context.Context) error {
	if err := s.takeLease(ctx); err != nil {
		return err
	}
	again := s.p.owned
	s.p.owned = true
	if s.last > 0 {
		if ok, err := s.resume(ctx); ok || err != nil {
			return err
		}
	}
	if again { // what the server had may be gone
		if err := s.checkParts(ctx); err != nil {
			return err
		}
	}
	return s.readServer(ctx)
}

// readServer reads the node's last message and its states, and sets the position after
// which the session resumes. There is none if the states are not those of the last
// message's epoch.
func (s *session) readServer(ctx context.Context) error {
	last, published, err := s.lastPublished(ctx)
	if err != nil {
		return err
	}
	s.forget()
	err = s.readNode(ctx, []string{s.key, s.key + ".>"}, func(e entry) error {
		if e.key != s.key {
			s.readState(ctx, e)
			return nil
		}
		s.revisions[s.key] = revision{sequence: e.revision}
		_ = json.Unmarshal(e.value, &s.node) // what cannot be read has no epoch
		return nil
	})
	if err != nil {
		return err
	}
	if published.Epoch == "" && s.p.acked.Epoch != "" {
		published = s.p.acked // the stream no longer has it
	}
	if published.Epoch != "" && published.Epoch == s.node.Epoch && !s.p.replay {
		s.after = &published
		s.p.acked = published
	}
	if last != nil {
		s.last = last.Sequence
	}
	s.p.replay = false
	return nil
}

// readState notes what the server has of one pod. If it cannot be read, the next session
// begins with the present state.
func (s *session) readState(ctx context.Context, e entry) {
	s.revisions[e.key] = revision{sequence: e.revision}
	if e.value == nil {
		return
	}
	var pod podState
	if err := json.Unmarshal(e.value, &pod); err != nil {
		s.p.log.WarnContext(ctx, "cannot read a state", "key", e.key, "err", err)
		s.p.replay = true
		return
	}
	s.pods[pod.UID] = newRecord(pod)
}

// lastPublished returns the node's last message in the stream, nil if there is none, and the
// position of the last event in it, zero if it is not of an agent.
func (s *session) lastPublished(ctx context.Context) (*storedMessage, pleg.Position, error) {
	last, err := s.message(ctx, s.nameOf(EventStream), wanted{Last: s.subject})
	if err != nil {
		return nil, pleg.Position{}, fmt.Errorf("read last message: %w", explain(s.p.o.Conn, err))
	}
	if last == nil {
		return nil, pleg.Position{}, nil
	}
	m, err := decode(last.Data)
	if err != nil {
		// A message that is not ours: what follows it begins with a Gap.
		s.p.log.WarnContext(ctx, "cannot read the last message", "subject", s.subject, "err", err)
		return last, pleg.Position{}, nil
	}
	return last, pleg.Position{Epoch: m.epoch, Seq: m.last}, nil
}

// run publishes the events until an error occurs or the channel is closed.
func (s *session) run(ctx context.Context, events <-chan pleg.Event) error {
	beat := time.NewTicker(min(beatPeriod, s.p.o.StateTTL/8))
	defer beat.Stop()
	for {
		// Before anything else is written: then the newest write no longer shows what is lost.
		if s.p.o.Conn.Stats().Reconnects != s.reconnects {
			return errReconnected
		}
		select {
		case ev, ok := <-events:
			if !ok {
				return errors.Join(ctx.Err(), exporter.ErrSourceEnded)
			}
			if err := s.publishAll(ctx, ev, events); err != nil {
				return err
			}
		case <-beat.C:
			if err := s.beat(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// messagePause is the time from one message to the next, unless many events wait: most of the
// cost of a message is that of two answers of the server. So an event is sent at once if the
// last message is older. Without the pause, publishing takes twice the CPU.
const messagePause = 20 * time.Millisecond

// publishAll publishes an event and those that wait behind it, up to a bound.
func (s *session) publishAll(ctx context.Context, ev pleg.Event, events <-chan pleg.Event) error {
	if pause := messagePause - time.Since(s.published); pause > 0 && len(events) < exporter.Buffer/2 {
		if err := backoff.Wait(ctx, pause); err != nil {
			return err
		}
	}
	defer func() { s.published = time.Now() }()
	accept := func(ev pleg.Event) error { return s.accept(ctx, ev) }
	more := func() bool { return len(s.batch) < exporter.Buffer }
	if err := exporter.Gather(ev, events, accept, more); err != nil {
		return err
	}
	return s.publishBatch(ctx)
}

// accept adds an event to the batch or to the present state, or acts on a mark.
func (s *session) accept(ctx context.Context, ev pleg.Event) error {
	if fit(&ev) {
		s.p.cut(ctx, ev.PodNamespace, ev.PodName, "a name or an id is too long to publish")
	}
	switch {
	case ev.Type == pleg.Bookmark:
		s.currentAsOf = ev.ObservedAt
	case ev.Type == pleg.Gap:
		if err := s.publishBatch(ctx); err != nil {
			return err
		}
		s.gap = &ev
		s.pods = make(map[pleg.PodUID]*podRecord)
	case ev.Type == pleg.Synced && s.gap != nil:
		return s.publishReplay(ctx, ev)
	case ev.Type == pleg.Synced:
	case ev.Missed > 0:
		return exporter.ErrOverrun
	case s.gap != nil:
		s.addReplayed(ev)
	default:
		return s.addToBatch(ev)
	}
	return nil
}

// addToBatch adds a new event. If it does not follow the last one, that is an error, and
// the next session begins with the present state.
func (s *session) addToBatch(ev pleg.Event) error {
	last := s.p.acked
	if n := len(s.batch); n > 0 {
		last.Seq = s.batch[n-1].Seq
	}
	isNew, err := exporter.IsNew(&ev, last)
	if isNew {
		s.batch = append(s.batch, ev)
	}
	s.p.replay = s.p.replay || err != nil
	return err
}

// addReplayed adds an event of the present state.
func (s *session) addReplayed(ev pleg.Event) {
	if s.gap.Epoch != ev.Epoch {
		// The records are those of an earlier epoch, or the first ones.
		s.gap.Epoch = ev.Epoch
		s.pods = make(map[pleg.PodUID]*podRecord)
	}
	s.record(ev).apply(ev)
}
