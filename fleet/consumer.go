package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// messageBuffer is the number of messages that may wait while the reader is busy. It limits the
	// number, not the bytes: with a limit of bytes, a server loses a state that does not fit, without a
	// hole in the numbers.
	messageBuffer = 1000
	// agentBuffer is the buffer of an agent, whose memory is limited: a message may take a
	// megabyte.
	agentBuffer = 50
	// maxHeartbeat is less than half of the time for which nats.go asks for messages at once.
	maxHeartbeat = 12 * time.Second
)

// consumer receives messages in their order.
type consumer struct {
	jetstream.MessagesContext
	*store

	release  func() bool // of the context that ends it
	subjects []string
	received uint64
	// last is the sequence number up to which the consumer has received everything.
	last uint64
	// left is how many messages wait behind the last one.
	left uint64
	// quiet is how long no message comes until the leader is asked for the number of the last one.
	// It is longer than two heartbeats: nats.go looks for them only during one wait.
	quiet time.Duration
}

// consume makes a consumer. It is not jetstream's ordered consumer. That one continues after lost
// messages even if other messages got their numbers, and waits 10 s while the servers are without a
// leader.
func (s *store) consume(ctx context.Context, config jetstream.ConsumerConfig) (*consumer, error) {
	bound, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	subjects := config.FilterSubjects
	config.AckPolicy, config.MemoryStorage, config.Replicas = jetstream.AckNonePolicy, true, 1
	if len(subjects) < 2 { // a server can permit a single filter, not several
		config.FilterSubject, config.FilterSubjects = append(slices.Clip(subjects), ">")[0], nil
	}
	created, err := s.stream.CreateConsumer(bound, config)
	if err != nil {
		return nil, fmt.Errorf("create consumer: %w", explain(s.js.Conn(), err))
	}
	// If two heartbeats do not come, the consumer is created again: if its leader is gone, it ends without an error.
	// nats.go's default is 15 s.
	quiet := s.timeout()
	messages, err := created.Messages(jetstream.PullMaxMessages(cmp.Or(s.buffer, messageBuffer)), jetstream.PullHeartbeat(min(quiet*2/5, maxHeartbeat)))
	if err != nil {
		return nil, fmt.Errorf("receive messages: %w", explain(s.js.Conn(), err))
	}
	last := max(1, config.OptStartSeq) - 1
	return &consumer{messages, s, context.AfterFunc(ctx, messages.Stop), subjects, 0, last, created.CachedInfo().NumPending, quiet}, nil
}

// Stop ends the consumer.
func (c *consumer) Stop() {
	c.release()
	c.MessagesContext.Stop()
}

var errBehind = errors.New("the server does not send messages that the leader has")

// next returns the next message; nil if none comes for a time and the leader stores no further one. A
// server that follows the leader may stay behind, although its heartbeats come.
func (c *consumer) next(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	for behind := false; ; behind = true {
		m, err := c.wait(ctx)
		if m != nil || err != nil {
			return m, err
		}
		all, err := c.hasAll(ctx)
		switch {
		case all:
			return nil, nil
		case behind:
			return nil, cmp.Or(err, errBehind)
		}
	}
}

// hasAll reports whether the consumer has received every message that the leader stores.
func (c *consumer) hasAll(ctx context.Context) (bool, error) {
	last, err := c.lastSequence(ctx, c.subjects...)
	if counted := last; err == nil && len(c.subjects) == 0 && last > c.last { // the last messages may be removed
		if last, err = c.lastSequence(ctx, subjectPrefix+">"); err == nil && last <= c.last {
			c.last = counted
		}
	}
	return err == nil && last <= c.last, err
}

// wait returns the next message; nil if none comes for a time.
func (c *consumer) wait(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	m, err := c.Next(jetstream.NextMaxWait(c.quiet))
	if errors.Is(err, nats.ErrTimeout) && ctx.Err() == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("receive messages: %w", explain(c.js.Conn(), cmp.Or(context.Cause(ctx), err)))
	}
	metadata, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("receive messages: %w", err)
	}
	if c.received++; metadata.Sequence.Consumer != c.received {
		return nil, errors.New("a message was lost under way")
	}
	c.last, c.left = metadata.Sequence.Stream, metadata.NumPending
	return &jetstream.RawStreamMsg{Subject: m.Subject(), Sequence: c.last, Header: m.Headers(), Data: m.Data(), Time: metadata.Timestamp}, nil
}

// snapshot calls each with the last message of each subject, and with later messages, in their
// order. It returns the sequence number up to which it has received everything.
func (s *store) snapshot(ctx context.Context, subjects []string, each func(*jetstream.RawStreamMsg)) (until uint64, err error) {
	messages, err := s.consume(ctx, jetstream.ConsumerConfig{FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy})
	if err != nil {
		return 0, err
	}
	defer messages.Stop()
	return messages.receive(ctx, 0, func(m *jetstream.RawStreamMsg) error { each(m); return nil })
}

// receive calls each with the next messages, until the consumer has received everything up to the sequence
// number that it returns. The proof is a message that the leader stored after the consumer began: any
// replica may send the messages, also one that lacks messages that the leader has acknowledged. The number
// is not below least.
func (c *consumer) receive(ctx context.Context, least uint64, each func(*jetstream.RawStreamMsg) error) (until uint64, err error) {
	until, err = c.lastSequence(ctx, c.subjects...)
	until = max(until, least)
	for err == nil && c.last < until {
		if c.left == 0 { // the last message was removed, or the server is behind
			if all, err := c.hasAll(ctx); all || err != nil {
				return until, err
			}
		}
		var m *jetstream.RawStreamMsg
		if m, err = c.next(ctx); m == nil {
			break
		}
		err = each(m)
	}
	return until, err
}
