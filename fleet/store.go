package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// store is a stream, or the stream of a bucket.
type store struct {
	*patience

	js     jetstream.JetStream
	stream jetstream.Stream
	buffer int // of its consumers; if 0, messageBuffer
}

const (
	// requestTimeout bounds one request: the leader may be gone.
	requestTimeout = 5 * time.Second
	// searchTimeout bounds the search of a stream for the last messages of all its subjects: seconds for
	// 500,000 pods.
	searchTimeout = time.Minute
)

// patience is the time that a request may take, by the number of attempts in a row that got no answer. The first
// three are the shortest: within them servers elect another leader. Later the server is busy, and a request that
// is given up and repeated keeps it so.
type patience struct{ unanswered int }

// note notes the error of an attempt.
func (p *patience) note(conn *nats.Conn, err error) {
	if conn.IsConnected() && (isTimeout(err) || errors.Is(err, jetstream.ErrNoHeartbeat)) {
		p.unanswered++
	}
}

func (p *patience) timeout() time.Duration {
	return min(requestTimeout<<min(max(0, p.unanswered-2), 4), searchTimeout)
}

// info returns the present state of the stream. With a filter it contains the subjects with messages; the server
// need not read the messages for that.
func (s *store) info(ctx context.Context, options ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	info, err := s.stream.Info(ctx, options...)
	if err == nil && !leads(info.Cluster) {
		err = errors.New("the server that answered no longer leads the stream")
	}
	if err != nil {
		return nil, fmt.Errorf("stream: %w", explain(s.js.Conn(), err))
	}
	return info, nil
}

// electionTime is the least time without a word from the leader after which the others elect another one.
const electionTime = 4 * time.Second

// leads reports whether the server that answered leads the stream: it has just heard from most of the other servers.
// A former leader that was stopped does not know at first that there is another leader. It answers with the old
// content of the stream.
func leads(c *jetstream.ClusterInfo) bool {
	if c == nil { // a server on its own
		return true
	}
	heard := 1
	for _, replica := range c.Replicas {
		if replica.Name == c.Leader {
			return false
		}
		if replica.Active > 0 && replica.Active < electionTime {
			heard++
		}
	}
	return c.Leader != "" && heard > len(c.Replicas)/2
}

// explain adds facts that the error of a call lacks: why there is no connection, or which permission
// is missing. Without a permission the server only lets the call time out.
func explain(conn *nats.Conn, err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) { // the size of the buffer is 0
		err = nats.ErrDisconnected
	}
	last := conn.LastError()
	switch {
	case !conn.IsConnected():
		if last != nil {
			err = last
		}
		var servers []string
		for _, server := range conn.Servers() {
			if u, err := url.Parse(server); err == nil {
				servers = append(servers, u.Redacted())
			}
		}
		return fmt.Errorf("not connected to %s: %w", strings.Join(servers, ", "), err)
	case isTimeout(err) && errors.Is(last, nats.ErrPermissionViolation):
		return fmt.Errorf("%w: %w", last, err)
	}
	return err
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// The errors with which the server refuses messages. Package jetstream does not name them.
const (
	noRoomInAccount jetstream.ErrorCode = 10002
	noRoomOnServer  jetstream.ErrorCode = 10023
	noRoomOnDisk    jetstream.ErrorCode = 10047
	tooLarge        jetstream.ErrorCode = 10054
	noRoomInStream  jetstream.ErrorCode = 10077
	incompleteBatch jetstream.ErrorCode = 10176
	// wrongLastMessage refuses the rest of a row.
	wrongLastMessage jetstream.ErrorCode = 10070
)

// refusal returns the code of the server's refusal; 0 if it is none.
func refusal(err error) jetstream.ErrorCode {
	if api := new(jetstream.APIError); errors.As(err, &api) {
		return api.ErrorCode
	}
	return 0
}

// isFull reports whether the server is full. It is asked again after minutes: old messages leave with time.
func isFull(code jetstream.ErrorCode) bool {
	return slices.Contains([]jetstream.ErrorCode{noRoomInAccount, noRoomOnServer, noRoomOnDisk, noRoomInStream}, code)
}

// newest returns the last message of a subject, which may contain wildcards; without a sequence number if there
// is none.
func (s *store) newest(ctx context.Context, subject string) (m *jetstream.RawStreamMsg, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	m, err = s.stream.GetLastMsgForSubject(ctx, subject)
	switch {
	case err == nil:
		return m, nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return new(jetstream.RawStreamMsg), nil
	case errors.Is(err, nats.ErrBadHeaderMsg): // no reader can read this message either, but a consumer knows its number
		messages, err := s.consume(ctx, jetstream.ConsumerConfig{FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverLastPolicy})
		if err != nil {
			return nil, err
		}
		defer messages.Stop()
		if m, err = messages.wait(ctx); m == nil {
			err = cmp.Or(err, context.DeadlineExceeded)
		}
		return m, err
	}
	return nil, fmt.Errorf("read message: %w", explain(s.js.Conn(), err))
}

// lastSequence returns the sequence number of the leader's last message of some subjects; 0 if there is none.
// Without subjects it is the last of the stream, for which the server searches no message.
func (s *store) lastSequence(ctx context.Context, subjects ...string) (last uint64, err error) {
	info, err := s.info(ctx)
	if err != nil {
		return 0, err
	}
	if len(subjects) == 0 {
		return info.State.LastSeq, nil
	}
	for _, subject := range subjects {
		m, err := s.newest(ctx, subject)
		if err != nil {
			return 0, err
		}
		last = max(last, m.Sequence)
	}
	return last, nil
}
