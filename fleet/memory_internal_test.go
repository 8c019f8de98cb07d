package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// memoryServer is a server in memory, with the stream of a cluster and the bucket. It does what an agent, a watch and
// States ask of it; tests/real/fleet has real servers.
type memoryServer struct {
	jetstream.JetStream

	conn           *nats.Conn
	stream, bucket *memoryStream
}

// newMemoryServer returns a server without streams.
func newMemoryServer(t *testing.T) memoryServer {
	t.Helper()
	s := memoryServer{stream: &memoryStream{level: 2}, bucket: new(memoryStream)}
	var err error
	s.conn, err = nats.Connect("", nats.InProcessServer(s))
	kit.Must(t, err)
	t.Cleanup(s.conn.Close)
	s.stream.conn, s.bucket.conn = s.conn, s.conn
	return s
}

func (s memoryServer) Conn() *nats.Conn { return s.conn }

func (s memoryServer) AccountInfo(context.Context) (*jetstream.AccountInfo, error) {
	return &jetstream.AccountInfo{API: jetstream.APIStats{Level: s.stream.level}}, nil
}

func (s memoryServer) Stream(_ context.Context, name string) (jetstream.Stream, error) {
	for _, stream := range []*memoryStream{s.stream, s.bucket} {
		if stream.config.Name == name {
			return stream, nil
		}
	}
	return nil, jetstream.ErrStreamNotFound
}

func (s memoryServer) CreateStream(_ context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	if s.stream.config.Name != "" {
		return nil, jetstream.ErrStreamNameAlreadyInUse
	}
	s.stream.config, s.stream.created = config, time.Now()
	return s.stream, nil
}

func (s memoryServer) KeyValue(_ context.Context, name string) (jetstream.KeyValue, error) {
	if s.bucket.config.Name != "KV_"+name {
		return nil, jetstream.ErrBucketNotFound
	}
	return memoryBucket{of: s.bucket}, nil
}

func (s memoryServer) CreateKeyValue(_ context.Context, config jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	s.bucket.config, s.bucket.created = jetstream.StreamConfig{
		Name: "KV_" + config.Bucket, MaxAge: config.TTL, MaxBytes: config.MaxBytes, Replicas: config.Replicas,
	}, time.Now()
	return memoryBucket{of: s.bucket}, nil
}

func (s memoryServer) Publish(_ context.Context, subject string, data []byte, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	sequence, err := s.stream.store(&nats.Msg{Subject: subject, Data: data})
	return &jetstream.PubAck{Sequence: sequence}, err
}

// PublishMsgAsync stores the messages on the connection first.
func (s memoryServer) PublishMsgAsync(m *nats.Msg, _ ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	if err := s.conn.FlushWithContext(ctx); err != nil { // Flush shares its timers with other bubbles
		return nil, err
	}
	a := fakeAnswer{ok: make(chan *jetstream.PubAck, 1), failed: make(chan error, 1)}
	if sequence, err := s.stream.store(m); err != nil {
		a.failed <- err
	} else {
		a.ok <- &jetstream.PubAck{Sequence: sequence}
	}
	return a, nil
}

// InProcessConn implements [nats.InProcessConnProvider].
func (s memoryServer) InProcessConn() (net.Conn, error) {
	return serveClient(1<<20, func(line string, rest io.Reader) string {
		var header, all int
		m := new(nats.Msg)
		if n, _ := fmt.Sscanf(line, "HPUB %s %d %d", &m.Subject, &header, &all); n == 3 {
			text := make([]byte, all+len("\r\n"))
			_, _ = io.ReadFull(rest, text)
			m.Header, _ = nats.DecodeHeadersMsg(text[:header])
			m.Data = text[header:all]
			_, _ = s.stream.store(m)
		}
		return ""
	}), nil
}

// memoryStream is a stream or a bucket.
type memoryStream struct {
	jetstream.Stream

	conn    *nats.Conn
	level   int // of the API of its server
	config  jetstream.StreamConfig
	created time.Time
	mu      sync.Mutex
	last    uint64
	held    []*jetstream.RawStreamMsg
	err     error // of each message to store
}

// with calls do with the lock.
func (s *memoryStream) with(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// newest returns the last message of a subject; one without a number if there is none.
func (s *memoryStream) newest(filter string) *jetstream.RawStreamMsg {
	for _, m := range slices.Backward(s.held) {
		if covers(filter, m.Subject) {
			return m
		}
	}
	return new(jetstream.RawStreamMsg)
}

// store stores a message if the one that it names is the last one.
func (s *memoryStream) store(m *nats.Msg) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	if want := m.Header.Get(jetstream.ExpectedLastSubjSeqHeader); want != "" {
		if last := s.newest(m.Header.Get(jetstream.ExpectedLastSubjSeqSubjHeader)); strconv.FormatUint(last.Sequence, 10) != want {
			return 0, &jetstream.APIError{ErrorCode: 10071}
		}
	}
	if want := m.Header.Get(jetstream.ExpectedLastMsgIDHeader); want != "" && s.newest(">").Header.Get(jetstream.MsgIDHeader) != want {
		return 0, &jetstream.APIError{ErrorCode: wrongLastMessage}
	}
	s.last++
	s.held = append(s.held, &jetstream.RawStreamMsg{Subject: m.Subject, Header: m.Header, Data: slices.Clone(m.Data), Sequence: s.last, Time: time.Now()})
	return s.last, nil
}

func (s *memoryStream) CachedInfo() *jetstream.StreamInfo {
	return &jetstream.StreamInfo{Config: s.config, Created: s.created}
}

// Info counts the messages of each subject if there is a filter.
func (s *memoryStream) Info(_ context.Context, filter ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	info := s.CachedInfo()
	info.TimeStamp, info.State = time.Now(), jetstream.StreamState{Subjects: make(map[string]uint64), FirstSeq: 1}
	s.with(func() {
		info.State.LastSeq, info.State.LastTime = s.last, s.newest(">").Time
		for _, m := range s.held {
			if len(filter) > 0 {
				info.State.Subjects[m.Subject]++
			}
		}
	})
	return info, nil
}

func (s *memoryStream) GetLastMsgForSubject(_ context.Context, filter string) (m *jetstream.RawStreamMsg, err error) {
	if s.with(func() { m = s.newest(filter) }); m.Sequence == 0 {
		return nil, jetstream.ErrMsgNotFound
	}
	return m, nil
}

func (s *memoryStream) GetMsg(_ context.Context, number uint64, _ ...jetstream.GetMsgOpt) (m *jetstream.RawStreamMsg, err error) {
	err = jetstream.ErrMsgNotFound
	s.with(func() {
		if i := slices.IndexFunc(s.held, func(m *jetstream.RawStreamMsg) bool { return m.Sequence == number }); i >= 0 {
			m, err = s.held[i], nil
		}
	})
	return m, err
}

func (s *memoryStream) Purge(_ context.Context, options ...jetstream.StreamPurgeOpt) error {
	var r jetstream.StreamPurgeRequest
	for _, o := range options {
		if err := o(&r); err != nil {
			return err
		}
	}
	s.with(func() {
		s.held = slices.DeleteFunc(s.held, func(m *jetstream.RawStreamMsg) bool { return covers(r.Subject, m.Subject) })
	})
	return nil
}

func (s *memoryStream) CreateConsumer(_ context.Context, config jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	c := &memoryConsumer{of: s, filters: append(config.FilterSubjects, config.FilterSubject), next: max(1, config.OptStartSeq)}
	s.with(func() {
		for _, m := range s.held {
			switch {
			case config.DeliverPolicy == jetstream.DeliverLastPerSubjectPolicy && c.wants(m) && s.newest(m.Subject) == m:
				c.first = append(c.first, m)
			case config.OptStartTime != nil && m.Time.Before(*config.OptStartTime):
				c.next = m.Sequence + 1
			}
		}
		if config.DeliverPolicy == jetstream.DeliverLastPerSubjectPolicy {
			c.next = s.last + 1
		}
		c.pending = uint64(len(c.waiting()))
	})
	return c, nil
}

// memoryConsumer gets some messages first, and then all from a number on.
type memoryConsumer struct {
	jetstream.Consumer

	of                  *memoryStream
	filters             []string
	first               []*jetstream.RawStreamMsg
	next, sent, pending uint64
	stopped             atomic.Bool
}

func (c *memoryConsumer) CachedInfo() *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{NumPending: c.pending}
}

func (c *memoryConsumer) Messages(...jetstream.PullMessagesOpt) (jetstream.MessagesContext, error) {
	return memoryMessages{memoryConsumer: c}, nil
}

type memoryMessages struct {
	jetstream.MessagesContext
	*memoryConsumer
}

func (c memoryMessages) Stop() { c.stopped.Store(true) }

func (c *memoryConsumer) wants(m *jetstream.RawStreamMsg) bool {
	return slices.ContainsFunc(c.filters, func(filter string) bool { return covers(filter, m.Subject) })
}

// waiting returns the messages that the consumer has not got. It needs the lock.
func (c *memoryConsumer) waiting() []*jetstream.RawStreamMsg {
	all := slices.Clone(c.first)
	for _, m := range c.of.held {
		if m.Sequence >= c.next && c.wants(m) {
			all = append(all, m)
		}
	}
	return all
}

func (c memoryMessages) Next(...jetstream.NextOpt) (got jetstream.Msg, err error) {
	for began := time.Now(); got == nil; {
		switch {
		case c.stopped.Load():
			return nil, jetstream.ErrMsgIteratorClosed
		case c.of.conn.IsClosed():
			return nil, nats.ErrConnectionClosed
		case time.Since(began) > requestTimeout:
			return nil, nats.ErrTimeout
		}
		c.of.with(func() {
			all := c.waiting()
			if len(all) == 0 {
				return
			}
			c.sent++
			if c.first = c.first[min(1, len(c.first)):]; all[0].Sequence >= c.next {
				c.next = all[0].Sequence + 1
			}
			got = fakeMessage{of: all[0], at: jetstream.MsgMetadata{
				Sequence: jetstream.SequencePair{Consumer: c.sent, Stream: all[0].Sequence}, NumPending: uint64(len(all) - 1), Timestamp: all[0].Time,
			}}
		})
		if got == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
	return got, nil
}

type memoryBucket struct {
	jetstream.KeyValue

	of *memoryStream
}

func (b memoryBucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	m, err := b.of.GetLastMsgForSubject(ctx, leasePrefix+key)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, jetstream.ErrKeyNotFound
	}
	return leaseEntry{of: &keptLease{text: string(m.Data), revision: m.Sequence}}, err
}

func (b memoryBucket) Create(ctx context.Context, key string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	return b.Update(ctx, key, value, 0)
}

func (b memoryBucket) Update(_ context.Context, key string, value []byte, last uint64) (uint64, error) {
	return b.of.store(&nats.Msg{Subject: leasePrefix + key, Data: value, Header: nats.Header{
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(last, 10)}, jetstream.ExpectedLastSubjSeqSubjHeader: {leasePrefix + key},
	}})
}
