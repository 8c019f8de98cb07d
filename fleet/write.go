package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func (s *session) statesOf(ctx context.Context, changed map[pleg.PodUID]*podRecord) ([]write, error) {
	writes := make([]write, 0, len(changed))
	for uid, r := range changed {
		w, err := s.stateOf(ctx, uid, r)
		if err != nil {
			return nil, err
		}
		if w.value != nil || w.revision != 0 { // else the pod has come and gone
			writes = append(writes, w)
		}
	}
	return writes, nil
}

// stateOf returns the write of a pod's state, or its removal if no container is left.
func (s *session) stateOf(ctx context.Context, uid pleg.PodUID, r *podRecord) (write, error) {
	key := podKey(s.p.o.Cluster, s.p.o.Node, r.Namespace, uid)
	w := write{key: key, revision: s.revisions[key].sequence}
	status, err := s.p.o.Source.Status(ctx, uid)
	if failed := new(StatusError); errors.As(err, &failed) {
		return w, err
	}
	if err := r.setStatus(status, err); err != nil {
		return w, fmt.Errorf("encode status of pod %s: %w", uid, err)
	}
	if len(r.last) == 0 {
		return w, nil
	}
	value, cut, err := r.encode(s.maxMessage())
	if err != nil {
		return w, fmt.Errorf("encode state of pod %s: %w", uid, err)
	}
	if cut {
		s.p.cut(ctx, r.Namespace, r.Name, r.Error)
	}
	w.value = value
	return w, nil
}

// maxMessage is the size of a message that the server accepts, less its headers.
func (s *session) maxMessage() int { return int(s.p.o.Conn.MaxPayload()) - 1024 }

// write is a value for a key of StateBucket, or its removal if value is nil.
type write struct {
	key      string
	value    []byte
	revision uint64
}

// message returns the message of a write in a bucket. The server removes a value after ttl.
func (w write) message(bucket string, ttl time.Duration) *nats.Msg {
	m := nats.NewMsg(subjectOf(bucket, w.key))
	m.Data = w.value
	if w.value == nil {
		m.Header.Set("KV-Operation", "PURGE")
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		ttl = markTTL
	}
	m.Header.Set(jetstream.MsgTTLHeader, ttl.String())
	return m
}

// writeNode writes the state of the node itself, after those of all its pods.
func (s *session) writeNode(ctx context.Context) error {
	value, err := json.Marshal(s.node)
	if err != nil {
		return fmt.Errorf("encode state of node: %w", err)
	}
	if err := s.write(ctx, []write{{key: s.key, value: value, revision: s.revisions[s.key].sequence}}); err != nil {
		return err
	}
	s.refreshed = time.Now()
	return nil
}

// refresh writes all states again, if that is due: the server removes what nobody refreshes.
func (s *session) refresh(ctx context.Context) error {
	if s.gap != nil || time.Since(s.refreshed) < s.p.o.StateTTL/2 {
		return nil
	}
	writes, err := s.statesOf(ctx, s.pods)
	if err != nil {
		return err
	}
	if err := s.write(ctx, writes); err != nil {
		return err
	}
	return s.writeNode(ctx)
}

// write sends the writes without waiting for each, and returns once all are acknowledged. nats.go
// bounds those that are under way.
func (s *session) write(ctx context.Context, writes []write) (err error) {
	acks := make([]jetstream.PubAckFuture, len(writes))
	for i, w := range writes {
		acks[i], err = s.js.PublishMsgAsync(w.message(s.nameOf(StateBucket), s.p.o.StateTTL),
			jetstream.WithExpectLastSequencePerSubject(w.revision), jetstream.WithStallWait(s.p.o.PublishTimeout))
		if err != nil {
			return fmt.Errorf("write states: %w", explain(s.p.o.Conn, err))
		}
	}
	timeout := time.NewTimer(s.p.o.PublishTimeout)
	defer timeout.Stop()
	for i, w := range writes {
		select {
		case a := <-acks[i].Ok():
			r := revision{sequence: a.Sequence}
			if w.value == nil {
				r.removed = time.Now()
			}
			s.revisions[w.key] = r
			timeout.Reset(s.p.o.PublishTimeout)
			continue
		case err = <-acks[i].Err():
		case <-timeout.C:
			err = nats.ErrTimeout
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		return fmt.Errorf("write states: %s: %w", w.key, explain(s.p.o.Conn, err))
	}
	return nil
}

// revision is the last write of a key.
type revision struct {
	sequence uint64
	removed  time.Time // zero for a value
}

// lossWindow is more than the time for which a server may lose what it has acknowledged: by
// default nats-server syncs its files every two minutes. markTTL is how long it keeps the mark of a
// removed pod: longer, so that a mark that is gone is no loss.
const (
	lossWindow = 3 * time.Minute
	markTTL    = lossWindow + time.Minute
)

// forgetMarks forgets the removals that the server can no longer lose.
func (s *session) forgetMarks() {
	maps.DeleteFunc(s.revisions, func(_ string, r revision) bool { return !r.removed.IsZero() && time.Since(r.removed) > lossWindow })
}
