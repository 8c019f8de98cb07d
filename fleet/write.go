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

// writeStates writes the states of pods, or removes them if no container is left.
func (p *Publisher) writeStates(ctx context.Context, pods map[pleg.PodUID]*podState) error {
	writes, err := p.statesOf(ctx, pods)
	if err != nil {
		return err
	}
	return p.write(ctx, writes)
}

// writeAll writes the states of all pods, removes those of pods that are gone, and then writes the
// node's key.
func (p *Publisher) writeAll(ctx context.Context) error {
	writes, err := p.statesOf(ctx, p.pods)
	if err != nil {
		return err
	}
	strays := maps.Clone(p.revisions)
	delete(strays, p.key)
	for _, w := range writes {
		delete(strays, w.key)
	}
	for key, r := range strays {
		if r.removed.IsZero() {
			writes = append(writes, write{key: key})
		}
	}
	if err := p.write(ctx, writes); err != nil {
		return err
	}
	value, err := json.Marshal(p.node)
	if err != nil {
		return fmt.Errorf("encode state of node: %w", err)
	}
	p.refreshed = time.Now()
	return p.write(ctx, []write{{p.key, value}})
}

// refresh writes all states again, if that is due: the server removes what nobody refreshes.
func (p *Publisher) refresh(ctx context.Context) error {
	if p.gap != nil || time.Since(p.refreshed) < p.o.StateTTL/2 {
		return nil
	}
	return p.writeAll(ctx)
}

func (p *Publisher) statesOf(ctx context.Context, pods map[pleg.PodUID]*podState) ([]write, error) {
	writes := make([]write, 0, len(pods))
	for uid, s := range pods {
		w := write{key: podKey(p.o.Cluster, p.o.Node, s.Namespace, uid)}
		status, err := p.o.Source.Status(ctx, uid)
		if err != nil && !errors.As(err, new(*pleg.InspectionError)) {
			return nil, fmt.Errorf("read pod status: %w", err)
		}
		if err := s.setStatus(status, err); err != nil {
			return nil, fmt.Errorf("encode status of pod %s: %w", uid, err)
		}
		if len(s.Events) > 0 {
			s.After = p.last
			value, cut, err := s.encode(p.maxMessage())
			if err != nil {
				return nil, fmt.Errorf("encode state of pod %s: %w", uid, err)
			}
			if cut {
				p.cut(ctx, s.Namespace, s.Name, s.Error)
			}
			w.value = value
		} else if r := p.revisions[w.key]; r.sequence == 0 || !r.removed.IsZero() {
			continue // the pod has come and gone
		}
		writes = append(writes, w)
	}
	return writes, nil
}

// write is a value for a key of StateBucket, or its removal if value is nil.
type write struct {
	key   string
	value []byte
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

// write sends the writes without waiting for each, and returns once all are acknowledged. nats.go
// bounds those that are under way.
func (p *Publisher) write(ctx context.Context, writes []write) (err error) {
	acks := make([]jetstream.PubAckFuture, len(writes))
	for i, w := range writes {
		acks[i], err = p.js.PublishMsgAsync(w.message(p.nameOf(StateBucket), p.o.StateTTL),
			jetstream.WithExpectLastSequencePerSubject(p.revisions[w.key].sequence), jetstream.WithStallWait(p.o.PublishTimeout))
		if err != nil {
			return fmt.Errorf("write states: %w", explain(p.o.Conn, err))
		}
	}
	timeout := time.NewTimer(p.o.PublishTimeout)
	defer timeout.Stop()
	for i, w := range writes {
		select {
		case a := <-acks[i].Ok():
			r := revision{sequence: a.Sequence}
			if w.value == nil {
				r.removed = time.Now()
			}
			p.revisions[w.key] = r
			timeout.Reset(p.o.PublishTimeout)
			continue
		case err = <-acks[i].Err():
		case <-timeout.C:
			err = nats.ErrTimeout
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		return fmt.Errorf("write states: %s: %w", w.key, explain(p.o.Conn, err))
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
func (p *Publisher) forgetMarks() {
	maps.DeleteFunc(p.revisions, func(_ string, r revision) bool { return !r.removed.IsZero() && time.Since(r.removed) > lossWindow })
}
