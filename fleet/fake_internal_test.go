package fleet

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// fakeStream is a stream on a server in memory.
type fakeStream struct {
	jetstream.Stream

	info  jetstream.StreamInfo
	takes time.Duration // of each answer
	err   error
	// newest is the last message of each subject; nil for none.
	newest *jetstream.RawStreamMsg
	// sent are the messages that a consumer gets, by their numbers; then its connection is closed.
	sent []uint64
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

func (s *fakeStream) GetLastMsgForSubject(context.Context, string) (*jetstream.RawStreamMsg, error) {
	if s.newest == nil {
		return nil, jetstream.ErrMsgNotFound
	}
	return s.newest, nil
}

func (s *fakeStream) CreateConsumer(context.Context, jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	return fakeConsumer{sent: s.sent}, nil
}

type fakeConsumer struct {
	jetstream.Consumer

	sent []uint64
}

func (fakeConsumer) CachedInfo() *jetstream.ConsumerInfo { return new(jetstream.ConsumerInfo) }

func (c fakeConsumer) Messages(...jetstream.PullMessagesOpt) (jetstream.MessagesContext, error) {
	return &fakeMessages{left: c.sent}, nil
}

type fakeMessages struct {
	jetstream.MessagesContext

	left []uint64
}

func (*fakeMessages) Stop() {}

func (m *fakeMessages) Next(...jetstream.NextOpt) (jetstream.Msg, error) {
	if len(m.left) == 0 {
		return nil, nats.ErrConnectionClosed
	}
	next := fakeMessage{number: m.left[0]}
	m.left = m.left[1:]
	return next, nil
}

type fakeMessage struct {
	jetstream.Msg

	number uint64
}

func (fakeMessage) Subject() string      { return "" }
func (fakeMessage) Headers() nats.Header { return nil }
func (fakeMessage) Data() []byte         { return nil }

func (m fakeMessage) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Consumer: m.number, Stream: m.number}}, nil
}

// fakeJetStream has a connection that is not connected. It acknowledges each message after a millisecond.
type fakeJetStream struct{ jetstream.JetStream }

func (fakeJetStream) Conn() *nats.Conn { return new(nats.Conn) }

func (fakeJetStream) PublishMsgAsync(*nats.Msg, ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
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
