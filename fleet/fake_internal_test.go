package fleet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// fakeStream is a stream on a server in memory.
type fakeStream struct {
	jetstream.Stream

	info  jetstream.StreamInfo
	takes time.Duration // of each answer
	err   error
	// newest is the last message of each subject; nil for none.
	newest *jetstream.RawStreamMsg
	// sent are the messages that a consumer gets, by their numbers.
	sent []uint64
	// held are the messages in the stream, in place of newest and sent.
	held []*jetstream.RawStreamMsg
	// quiet is how long a consumer waits for a further message; if 0, its connection is closed at once.
	quiet time.Duration
}

// add adds a message to the stream.
func (s *fakeStream) add(subject string, body []byte) {
	s.info.State.LastSeq++
	s.held = append(s.held, &jetstream.RawStreamMsg{Subject: subject, Sequence: s.info.State.LastSeq, Data: body, Time: s.info.TimeStamp})
}

// of returns the messages of some subjects.
func (s *fakeStream) of(filters ...string) (all []*jetstream.RawStreamMsg) {
	for _, m := range s.held {
		if slices.ContainsFunc(filters, func(filter string) bool { return covers(filter, m.Subject) }) {
			all = append(all, m)
		}
	}
	return all
}

// covers reports whether a filter covers a subject.
func covers(filter, subject string) bool {
	wants, has := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, want := range wants {
		switch {
		case i >= len(has) || want != has[i] && want != "*" && want != ">":
			return false
		case want == ">":
			return true
		}
	}
	return len(wants) == len(has)
}

// on returns the store of the stream.
func (s *fakeStream) on() *store {
	return &store{patience: new(patience), js: fakeJetStream{}, stream: s}
}

func (s *fakeStream) CachedInfo() *jetstream.StreamInfo { return &s.info }

func (s *fakeStream) Info(context.Context, ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	time.Sleep(s.takes)
	return &s.info, s.err
}

func (s *fakeStream) GetLastMsgForSubject(_ context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if all := s.of(subject); len(all) > 0 {
		return all[len(all)-1], nil
	}
	if s.newest == nil {
		return nil, jetstream.ErrMsgNotFound
	}
	return s.newest, nil
}

func (s *fakeStream) GetMsg(ctx context.Context, _ uint64, _ ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	return s.GetLastMsgForSubject(ctx, "")
}

func (s *fakeStream) CreateConsumer(_ context.Context, config jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	c := fakeConsumer{quiet: s.quiet}
	for _, number := range s.sent {
		c.sent = append(c.sent, fakeMessage{of: new(jetstream.RawStreamMsg), at: jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Consumer: number, Stream: number}}})
	}
	all := s.of(append(config.FilterSubjects, config.FilterSubject)...)
	for i, m := range all {
		c.sent = append(c.sent, fakeMessage{of: m, at: jetstream.MsgMetadata{
			Sequence: jetstream.SequencePair{Consumer: uint64(i + 1), Stream: m.Sequence}, NumPending: uint64(len(all) - 1 - i), Timestamp: m.Time,
		}})
	}
	return c, nil
}

type fakeConsumer struct {
	jetstream.Consumer

	sent  []fakeMessage
	quiet time.Duration
}

func (c fakeConsumer) CachedInfo() *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{NumPending: uint64(len(c.sent))}
}

func (c fakeConsumer) Messages(...jetstream.PullMessagesOpt) (jetstream.MessagesContext, error) {
	return &fakeMessages{left: c.sent, quiet: c.quiet}, nil
}

type fakeMessages struct {
	jetstream.MessagesContext

	left  []fakeMessage
	quiet time.Duration
}

func (*fakeMessages) Stop() {}

func (m *fakeMessages) Next(...jetstream.NextOpt) (jetstream.Msg, error) {
	switch {
	case len(m.left) > 0:
	case m.quiet > 0:
		time.Sleep(m.quiet)
		return nil, nats.ErrTimeout
	default:
		return nil, nats.ErrConnectionClosed
	}
	next := m.left[0]
	m.left = m.left[1:]
	return next, nil
}

type fakeMessage struct {
	jetstream.Msg

	of *jetstream.RawStreamMsg
	at jetstream.MsgMetadata
}

func (m fakeMessage) Subject() string                           { return m.of.Subject }
func (m fakeMessage) Headers() nats.Header                      { return m.of.Header }
func (m fakeMessage) Data() []byte                              { return m.of.Data }
func (m fakeMessage) Metadata() (*jetstream.MsgMetadata, error) { return &m.at, nil }

// fakeJetStream has a connection that is not connected. It acknowledges each message after a millisecond.
type fakeJetStream struct {
	jetstream.JetStream

	stream *fakeStream // of each name
	err    error       // of each change
	got    *[]*nats.Msg
}

func (j fakeJetStream) Stream(context.Context, string) (jetstream.Stream, error) {
	return j.stream, nil
}

func (fakeJetStream) Conn() *nats.Conn { return new(nats.Conn) }

func (j fakeJetStream) UpdateStream(context.Context, jetstream.StreamConfig) (jetstream.Stream, error) {
	return j.stream, j.err
}

func (j fakeJetStream) PublishMsgAsync(m *nats.Msg, _ ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	if j.got != nil {
		*j.got = append(*j.got, m)
	}
	answer := fakeAnswer{ok: make(chan *jetstream.PubAck, 1)}
	time.AfterFunc(time.Millisecond, func() { answer.ok <- new(jetstream.PubAck) })
	return answer, nil
}

type fakeAnswer struct {
	jetstream.PubAckFuture

	ok     chan *jetstream.PubAck
	failed chan error
}

func (a fakeAnswer) Ok() <-chan *jetstream.PubAck { return a.ok }
func (a fakeAnswer) Err() <-chan error            { return a.failed }

// connectTo returns a connection to a server in memory that takes messages of so many bytes.
func connectTo(t *testing.T, maxPayload int) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect("", nats.InProcessServer(fakeServer(maxPayload)), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	kit.Must(t, err)
	t.Cleanup(conn.Close)
	return conn
}

type fakeServer int

// InProcessConn implements [nats.InProcessConnProvider].
func (s fakeServer) InProcessConn() (net.Conn, error) {
	return serveClient(int(s), func(line string, _ io.Reader) string {
		if line == "PUB forbidden 0\r\n" {
			return "-ERR 'Permissions Violation for Publish to \"forbidden\"'\r\n"
		}
		return ""
	}), nil
}

// serveClient returns the connection of a client, of which answer gets each line. A client that writes may not read
// meanwhile, so the server does not wait until its answers are read.
func serveClient(maxPayload int, answer func(line string, rest io.Reader) string) net.Conn {
	client, server := net.Pipe()
	answers := make(chan string, 1000)
	answers <- fmt.Sprintf("INFO {\"headers\":true,\"max_payload\":%d}\r\n", maxPayload)
	go func() {
		for text := range answers {
			_, _ = io.WriteString(server, text)
		}
	}()
	go func() {
		defer close(answers)
		for r := bufio.NewReader(server); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if line == "PING\r\n" {
				answers <- "PONG\r\n"
			} else if text := answer(line, r); text != "" {
				answers <- text
			}
		}
	}()
	return client
}
