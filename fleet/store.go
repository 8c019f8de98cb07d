package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
}

const (
	// requestTimeout bounds one request, such as to a leader that is gone.
	requestTimeout = 5 * time.Second
	// searchTimeout bounds the search of a stream for the last messages of all its subjects: seconds for
	// 500,000 pods.
	searchTimeout = time.Minute
)

// patience is the time that a request may take, by the number of attempts in a row that got no answer. The first
// three have the shortest: within them servers elect another leader. Later the server is busy: who gives up and
// asks again keeps it so.
type patience struct{ unanswered int }

// note notes the error of an attempt.
func (p *patience) note(conn *nats.Conn, err error) {
	if conn.IsConnected() && isTimeout(err) {
		p.unanswered++
	}
}

func (p *patience) timeout() time.Duration {
	return min(requestTimeout<<min(max(0, p.unanswered-2), 4), searchTimeout)
}

// info returns the present state of the stream. With a filter it has the subjects that have messages, for which the
// server need not read these.
func (s *store) info(ctx context.Context, options ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	info, err := s.stream.Info(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("stream: %w", explain(s.js.Conn(), err))
	}
	return info, nil
}

// explain adds what the error of a call does not say: why there is no connection, or what the server
// does not permit: it then lets the call time out.
func explain(conn *nats.Conn, err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) { // of the size 0
		err = nats.ErrDisconnected
	}
	last := conn.LastError()
	switch {
	case err == nil:
		return nil
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

// isRefused reports whether the server has answered and said no, such as that the stream is full:
// it may have stored later messages. It is not refused if there is no leader now, or if the server
// is about to store the same message, which was sent twice.
func isRefused(err error) bool {
	// JSStreamStoreFailedF and JSStreamDuplicateMessageConflict
	const notStored, duplicate, inProcess = 10077, 10158, jetstream.JSErrCodeStreamWrongLastSequenceConstant
	api := new(jetstream.APIError)
	if !errors.As(err, &api) || api.ErrorCode == duplicate || api.ErrorCode == inProcess {
		return false
	}
	return api.ErrorCode == notStored || api.Code != http.StatusServiceUnavailable
}

// stored is a message on the server.
type stored struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	Data     []byte    `json:"data"`
}

// wanted asks for the last message of a subject, which may have wildcards, or for the message with
// a sequence number.
type wanted struct {
	Last     string `json:"last_by_subj,omitempty"`
	Sequence uint64 `json:"seq,omitempty"`
}

// message returns a message of the stream; without a sequence number if there is no such message.
// The leader of the stream answers. jetstream.Stream asks any replica of a bucket instead, also a
// replica that does not have yet what the leader has acknowledged, and fails if the headers cannot
// be read.
func (s *store) message(ctx context.Context, w wanted) (m stored, err error) {
	body, err := json.Marshal(w)
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	conn := s.js.Conn()
	reply, err := conn.RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.MSG.GET."+s.stream.CachedInfo().Config.Name, body)
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message stored              `json:"message"`
	}
	if err == nil {
		err = json.Unmarshal(reply.Data, &answer)
	}
	if err == nil && answer.Error != nil && answer.Error.ErrorCode != jetstream.JSErrCodeMessageNotFound {
		err = answer.Error
	}
	if err != nil {
		return m, fmt.Errorf("read message: %w", explain(conn, err))
	}
	return answer.Message, nil
}

// lastSequence returns the sequence number of the last message of some subjects that the leader has;
// 0 if there is none.
func (s *store) lastSequence(ctx context.Context, subjects ...string) (last uint64, err error) {
	for _, subject := range subjects {
		m, err := s.message(ctx, wanted{Last: subject})
		if err != nil {
			return 0, err
		}
		last = max(last, m.Sequence)
	}
	return last, nil
}
