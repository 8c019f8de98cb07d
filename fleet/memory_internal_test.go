package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
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

func (s memoryServer) AccountInfo(ctx context.Context) (*jetstream.AccountInfo, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if s.stream.level == 0 {
		return nil, jetstream.ErrJetStreamNotEnabled
	}
	return &jetstream.AccountInfo{API: jetstream.APIStats{Level: s.stream.level}}, nil
}

func (s memoryServer) Stream(_ context.Context, name string) (jetstream.Stream, error) {
	for _, stream := range []*memoryStream{s.stream, s.bucket} {
		if err := stream.look(); err != nil {
			return nil, err
		}
		if stream.info.Config.Name == name {
			return stream, nil
		}
	}
	return nil, jetstream.ErrStreamNotFound
}

func (s memoryServer) CreateStream(_ context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	if s.stream.made++; s.stream.full != nil {
		return nil, s.stream.full
	}
	if s.stream.info.Config.Name != "" {
		return nil, jetstream.ErrStreamNameAlreadyInUse
	}
	s.stream.info.Config, s.stream.info.Created = config, time.Now()
	return s.stream, nil
}

func (s memoryServer) UpdateStream(_ context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	if config.Name != s.stream.info.Config.Name {
		return nil, jetstream.ErrStreamNotFound
	}
	s.stream.info.Config = config
	return s.stream, nil
}

func (s memoryServer) KeyValue(_ context.Context, name string) (jetstream.KeyValue, error) {
	if err := cmp.Or(s.bucket.err, s.bucket.look()); err != nil {
		return nil, err
	}
	if s.bucket.info.Config.Name != "KV_"+name {
		return nil, jetstream.ErrBucketNotFound
	}
	return memoryBucket{of: s.bucket}, nil
}

func (s memoryServer) CreateKeyValue(_ context.Context, config jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	if s.bucket.made++; s.bucket.full != nil {
		return nil, s.bucket.full
	}
	if s.bucket.info.Config.Name != "" {
		return nil, jetstream.ErrBucketExists
	}
	s.bucket.info.Config, s.bucket.info.Created = jetstream.StreamConfig{
		Name: "KV_" + config.Bucket, MaxAge: config.TTL, MaxBytes: config.MaxBytes, Replicas: config.Replicas, Description: config.Description,
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

	conn  *nats.Conn // if nil, it is closed
	level int        // of the API of its server; if 0, JetStream is off
	looks []error    // of the next looks for it
	// info is the state without messages, and TimeStamp the time at the server; if zero, now.
	info  jetstream.StreamInfo
	takes time.Duration // each state
	found int           // states with the subjects of a filter
	err   error         // of each state
	full  error         // of each message to store, and of its creation
	made  int           // attempts to create it
	stuck error         // of each removal
	deaf  error         // of each consumer that would receive
	bare  error         // of the metadata of each message
	open  int           // consumers that receive
	late  uint64        // messages that a consumer is told of, and that do not come
	mute  error         // of each message to read, and of each consumer
	whole bool          // all messages of each subject come, as if they were new
	mu    sync.Mutex
	held  []*jetstream.RawStreamMsg
}

// streamOf returns a stream with one message of the node n.
func streamOf(m jetstream.RawStreamMsg) *memoryStream {
	m.Subject = nodeSubject("c", "n")
	return &memoryStream{held: []*jetstream.RawStreamMsg{&m}}
}

// on returns the store of the stream.
func (s *memoryStream) on() *store {
	return &store{patience: new(patience), js: fakeJetStream{}, stream: s}
}

// add stores a message.
func (s *memoryStream) add(subject string, body []byte) {
	_, _ = s.store(&nats.Msg{Subject: subject, Data: body})
}

// look returns the error of a look for the stream.
func (s *memoryStream) look() (err error) {
	if len(s.looks) > 0 {
		err, s.looks = s.looks[0], s.looks[1:]
	}
	return err
}

// left returns the number of consumers that have not been stopped.
func (s *memoryStream) left() (n int) {
	s.with(func() { n = s.open })
	return n
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
	if s.full != nil {
		return 0, s.full
	}
	if want := m.Header.Get(jetstream.ExpectedLastSubjSeqHeader); want != "" {
		if last := s.newest(m.Header.Get(jetstream.ExpectedLastSubjSeqSubjHeader)); strconv.FormatUint(last.Sequence, 10) != want {
			return 0, &jetstream.APIError{ErrorCode: 10071}
		}
	}
	if want := m.Header.Get(jetstream.ExpectedLastMsgIDHeader); want != "" && s.newest(">").Header.Get(jetstream.MsgIDHeader) != want {
		return 0, &jetstream.APIError{ErrorCode: wrongLastMessage}
	}
	info := s.state()
	s.info.State.LastSeq = info.State.LastSeq + 1
	s.held = append(s.held, &jetstream.RawStreamMsg{Subject: m.Subject, Header: m.Header, Data: slices.Clone(m.Data), Sequence: s.info.State.LastSeq, Time: info.TimeStamp})
	return s.info.State.LastSeq, nil
}

// state returns the state of the stream. It needs the lock.
func (s *memoryStream) state() *jetstream.StreamInfo {
	info, newest := s.info, s.newest(">")
	info.TimeStamp, info.State.Subjects = cmp.Or(info.TimeStamp, time.Now()), make(map[string]uint64)
	info.State.FirstSeq, info.State.LastSeq, info.State.LastTime = 1, max(info.State.LastSeq, newest.Sequence), newest.Time
	return &info
}

func (s *memoryStream) CachedInfo() *jetstream.StreamInfo { return &s.info }

// asked returns what an option asks for. The type has no name outside of package jetstream.
func asked(option any) reflect.Value {
	request := reflect.New(reflect.TypeOf(option).In(0).Elem())
	reflect.ValueOf(option).Call([]reflect.Value{request})
	return request.Elem()
}

// Info counts the messages of the subjects in the filter.
func (s *memoryStream) Info(ctx context.Context, filter ...jetstream.StreamInfoOpt) (info *jetstream.StreamInfo, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	time.Sleep(s.takes)
	s.with(func() {
		info, err = s.state(), s.err
		for _, of := range filter {
			s.found++
			for _, m := range s.held {
				if covers(asked(of).FieldByName("SubjectFilter").String(), m.Subject) {
					info.State.Subjects[m.Subject]++
				}
			}
		}
	})
	return info, err
}

func (s *memoryStream) GetLastMsgForSubject(ctx context.Context, filter string) (m *jetstream.RawStreamMsg, err error) {
	if s.with(func() { m = s.newest(filter) }); m.Sequence == 0 || s.mute != nil || ctx.Err() != nil {
		return nil, cmp.Or[error](ctx.Err(), s.mute, jetstream.ErrMsgNotFound)
	}
	return m, nil
}

func (s *memoryStream) GetMsg(ctx context.Context, number uint64, _ ...jetstream.GetMsgOpt) (m *jetstream.RawStreamMsg, err error) {
	err = cmp.Or[error](ctx.Err(), s.mute, jetstream.ErrMsgNotFound)
	s.with(func() {
		if i := slices.IndexFunc(s.held, func(m *jetstream.RawStreamMsg) bool { return m.Sequence == number }); i >= 0 && errors.Is(err, jetstream.ErrMsgNotFound) {
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
	if s.stuck != nil {
		return s.stuck
	}
	s.remove(r.Subject)
	return nil
}

// remove removes the messages of some subjects.
func (s *memoryStream) remove(filter string) {
	s.with(func() {
		s.held = slices.DeleteFunc(s.held, func(m *jetstream.RawStreamMsg) bool { return covers(filter, m.Subject) })
	})
}

func (s *memoryStream) CreateConsumer(ctx context.Context, config jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	c := &memoryConsumer{of: s, config: config, filters: append(config.FilterSubjects, config.FilterSubject), next: max(1, config.OptStartSeq)}
	s.with(func() {
		for _, m := range s.held {
			switch {
			case config.DeliverPolicy == jetstream.DeliverLastPerSubjectPolicy && c.wants(m) && (s.whole || s.newest(m.Subject) == m):
				c.first = append(c.first, m)
			case config.DeliverPolicy == jetstream.DeliverLastPolicy && c.wants(m):
				c.next = m.Sequence
			}
		}
		switch config.DeliverPolicy {
		case jetstream.DeliverByStartTimePolicy: // from the first one on, whatever the times of the next
			if i := slices.IndexFunc(s.held, func(m *jetstream.RawStreamMsg) bool { return !m.Time.Before(*config.OptStartTime) }); i >= 0 {
				c.next = s.held[i].Sequence
				break
			}
			fallthrough
		case jetstream.DeliverLastPerSubjectPolicy:
			c.next = s.state().State.LastSeq + 1
		}
		c.pending = uint64(len(c.waiting())) + s.late
	})
	if errors.Is(s.mute, nats.ErrBadHeaderMsg) { // a consumer can read them
		return c, nil
	}
	return c, s.mute
}

// memoryConsumer gets some messages first, and then all from a number on.
type memoryConsumer struct {
	jetstream.Consumer

	of                  *memoryStream
	config              jetstream.ConsumerConfig
	options             []jetstream.PullMessagesOpt
	filters             []string
	first               []*jetstream.RawStreamMsg
	next, sent, pending uint64
	stopped             atomic.Bool
}

func (c *memoryConsumer) CachedInfo() *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{NumPending: c.pending}
}

func (c *memoryConsumer) Messages(options ...jetstream.PullMessagesOpt) (jetstream.MessagesContext, error) {
	c.options = options
	if c.of.deaf == nil {
		c.of.with(func() { c.of.open++ })
	}
	return memoryMessages{memoryConsumer: c}, c.of.deaf
}

type memoryMessages struct {
	jetstream.MessagesContext
	*memoryConsumer
}

func (c memoryMessages) Stop() {
	c.of.with(func() {
		if !c.stopped.Swap(true) {
			c.of.open--
		}
	})
}

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

func (c memoryMessages) Next(options ...jetstream.NextOpt) (got jetstream.Msg, err error) {
	var most time.Duration
	for _, of := range options {
		most = time.Duration(asked(of).FieldByName("timeout").Int())
	}
	for began := time.Now(); got == nil && err == nil; {
		c.of.with(func() {
			switch all := c.waiting(); {
			case c.stopped.Load():
				err = jetstream.ErrMsgIteratorClosed
			case len(all) > 0:
				c.sent++
				if c.first = c.first[min(1, len(c.first)):]; all[0].Sequence >= c.next {
					c.next = all[0].Sequence + 1
				}
				got = fakeMessage{of: all[0], err: c.of.bare, at: jetstream.MsgMetadata{
					Sequence: jetstream.SequencePair{Consumer: c.sent, Stream: all[0].Sequence}, NumPending: uint64(len(all) - 1), Timestamp: all[0].Time,
				}}
			case c.of.conn == nil || c.of.conn.IsClosed():
				err = nats.ErrConnectionClosed
			case most > 0 && time.Since(began) >= most:
				err = nats.ErrTimeout
			}
		})
		if got == nil && err == nil {
			time.Sleep(requestTimeout / 100)
		}
	}
	return got, err
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
	if err != nil {
		return nil, err
	}
	return leaseEntry{of: &keptLease{text: string(m.Data), revision: m.Sequence}}, nil
}

func (b memoryBucket) Create(ctx context.Context, key string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	return b.Update(ctx, key, value, 0)
}

func (b memoryBucket) Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return b.of.store(&nats.Msg{Subject: leasePrefix + key, Data: value, Header: nats.Header{
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(last, 10)}, jetstream.ExpectedLastSubjSeqSubjHeader: {leasePrefix + key},
	}})
}
