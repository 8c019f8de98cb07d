package fleet

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

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

type fakeMessage struct {
	jetstream.Msg

	of  *jetstream.RawStreamMsg
	at  jetstream.MsgMetadata
	err error
}

func (m fakeMessage) Subject() string                           { return m.of.Subject }
func (m fakeMessage) Headers() nats.Header                      { return m.of.Header }
func (m fakeMessage) Data() []byte                              { return m.of.Data }
func (m fakeMessage) Metadata() (*jetstream.MsgMetadata, error) { return &m.at, m.err }

// fakeJetStream has a connection that is not connected. It acknowledges each message after a millisecond.
type fakeJetStream struct {
	jetstream.JetStream

	stream *memoryStream // of each name
	err    error         // of each change and message
	got    *[]*nats.Msg
	conn   *nats.Conn // if nil, one without a server
}

func (j fakeJetStream) Stream(context.Context, string) (jetstream.Stream, error) {
	return j.stream, nil
}

func (j fakeJetStream) Conn() *nats.Conn { return cmp.Or(j.conn, new(nats.Conn)) }

func (j fakeJetStream) UpdateStream(context.Context, jetstream.StreamConfig) (jetstream.Stream, error) {
	return j.stream, j.err
}

func (j fakeJetStream) PublishMsgAsync(m *nats.Msg, _ ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	if j.err != nil {
		return nil, j.err
	}
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
	answers <- fmt.Sprintf("INFO {\"version\":\"2.11.9\",\"headers\":true,\"max_payload\":%d}\r\n", maxPayload)
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
