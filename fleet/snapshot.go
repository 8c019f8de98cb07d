package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// inactiveThreshold is how long the server keeps a consumer that does not ask for messages.
	inactiveThreshold = 5 * time.Minute
	// heartbeat is how often the server says that it is there. If two do not come, the consumer is
	// created again: if its leader is gone, it ends without an error. nats.go's default is 15 s.
	heartbeat = 3 * time.Second
	// messageBuffer is the size of the messages that may wait while the reader is busy: a thousand
	// usual ones. It is larger on a server that accepts large ones.
	messageBuffer = 1 << 20
	// searchTimeout is how long the server may search a stream for the last message of each subject:
	// seconds for 500,000 pods.
	searchTimeout = 2 * time.Minute
	// quietTime is how long nothing comes until the leader is asked again what is the last message.
	quietTime = time.Second
	// idleTimeout is how long a stream that is being read may send nothing.
	idleTimeout = 30 * time.Second
)

var (
	errReadTimeout  = errors.New("the server stopped sending")
	errLostUnderWay = errors.New("a message was lost under way")
)

// consume returns the messages of a consumer. Not jetstream's OrderedConsumer: it makes itself again,
// and waits 10 s for that while the servers have no leader.
func (s *store) consume(ctx context.Context, config jetstream.ConsumerConfig) (jetstream.MessagesContext, *jetstream.ConsumerInfo, error) {
	config.AckPolicy, config.MemoryStorage, config.Replicas = jetstream.AckNonePolicy, true, 1
	config.InactiveThreshold = cmp.Or(config.InactiveThreshold, inactiveThreshold)
	if len(config.FilterSubjects) == 1 { // a server can permit one, not several
		config.FilterSubject, config.FilterSubjects = config.FilterSubjects[0], nil
	}
	consumer, err := request(ctx, s.js, func(ctx context.Context) (jetstream.Consumer, error) { return s.stream.CreateConsumer(ctx, config) })
	if err != nil {
		return nil, nil, fmt.Errorf("create consumer: %w", explain(s.js.Conn(), err))
	}
	largest := int(s.js.Conn().MaxPayload())
	messages, err := consumer.Messages(jetstream.PullMaxBytes(max(messageBuffer, 4*largest)), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return nil, nil, fmt.Errorf("receive messages: %w", explain(s.js.Conn(), err))
	}
	return messages, consumer.CachedInfo(), nil
}

// snapshot calls each with the last message of each subject, and with what is written meanwhile, in
// their order. It returns the sequence number up to which it has everything. What proves that is a
// message that the leader had after the consumer began: any replica may send the messages, also one
// that does not have yet what the leader has acknowledged.
func (s *store) snapshot(ctx context.Context, subjects []string, each func(*stored) error) (until uint64, err error) {
	searching, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	// If there is nothing, the server need not search.
	if until, err = s.lastSequence(searching, subjects); err != nil || until == 0 {
		return 0, err
	}
	messages, _, err := s.consume(searching, jetstream.ConsumerConfig{
		FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, InactiveThreshold: idleTimeout,
	})
	if err != nil {
		return 0, err
	}
	defer messages.Stop()
	if until, err = s.lastSequence(searching, subjects); err != nil {
		return 0, err
	}
	received, last, heard := uint64(0), uint64(0), time.Now()
	for last < until {
		waiting, cancel := context.WithTimeout(ctx, quietTime)
		m, err := messages.Next(jetstream.NextContext(waiting))
		quiet := m == nil && waiting.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case quiet && time.Since(heard) > idleTimeout:
			return 0, explain(s.js.Conn(), errReadTimeout)
		case quiet: // what was the last message may have been removed since
			if until, err = s.lastSequence(ctx, subjects); err != nil {
				return 0, err
			}
			continue
		case m == nil:
			return 0, fmt.Errorf("read the last messages: %w", explain(s.js.Conn(), cmp.Or(context.Cause(ctx), err)))
		}
		metadata, err := m.Metadata()
		if err != nil {
			return 0, fmt.Errorf("read the last messages: %w", err)
		}
		if received++; metadata.Sequence.Consumer != received {
			return 0, errLostUnderWay
		}
		if m.Headers().Get("KV-Operation") == "" && m.Headers().Get(jetstream.MarkerReasonHeader) == "" {
			if err := each(&stored{Subject: m.Subject(), Sequence: metadata.Sequence.Stream, Time: metadata.Timestamp, Data: m.Data()}); err != nil {
				return 0, err
			}
		}
		last, heard = metadata.Sequence.Stream, time.Now()
	}
	return until, nil
}
