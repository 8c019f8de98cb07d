package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// store is a stream, or the one of a bucket.
type store struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

func openStore(ctx context.Context, js jetstream.JetStream, name string) (*store, error) {
	stream, err := request(ctx, js, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, name) })
	return &store{js, stream}, err
}

func (s *store) name() string { return s.stream.CachedInfo().Config.Name }

// requestTimeout bounds one request of nats.go, such as to a leader that is gone.
const requestTimeout = 10 * time.Second

// errReplaced means that another agent has published as the node, or this one before it lost its
// connection.
var errReplaced = errors.New("the server has something else than this agent published last")

// explain adds what the error of a call does not say: why there is no connection, who was
// faster, or what the server does not permit: it then lets the call time out.
func explain(conn *nats.Conn, err error) error {
	if err == nil {
		return nil
	}
	if api := new(jetstream.APIError); errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return fmt.Errorf("%w: %w", errReplaced, err)
	}
	if !conn.IsConnected() {
		return notConnected(conn, err)
	}
	timedOut := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, errReadTimeout)
	if timedOut && isForbidden(conn) {
		return fmt.Errorf("%w: %w", conn.LastError(), err)
	}
	return err
}

// isForbidden reports whether the server said last that something is not permitted.
func isForbidden(conn *nats.Conn) bool {
	return errors.Is(conn.LastError(), nats.ErrPermissionViolation)
}

// isRefused reports whether the server answered and said no.
func isRefused(err error) bool {
	return errors.As(err, new(*jetstream.APIError)) && !isUnavailable(err)
}

// isUnavailable reports whether the servers, or those of a stream, have no leader.
func isUnavailable(err error) bool {
	api := new(jetstream.APIError)
	return errors.As(err, &api) && api.Code == http.StatusServiceUnavailable && api.ErrorCode == codeUnavailable
}

// codeUnavailable is JSClusterNotAvailErr of nats-server.
const codeUnavailable = 10008

// errNotConnected is the error of a call that was not made.
var errNotConnected = errors.New("no server answers")

// notConnected returns the reason of the last attempt to connect, or err if the
// connection does not have it.
func notConnected(conn *nats.Conn, err error) error {
	if last := conn.LastError(); last != nil && !errors.Is(last, nats.ErrReconnectBufExceeded) {
		err = last
	}
	var servers []string
	for _, server := range conn.Servers() {
		if u, err := url.Parse(server); err == nil {
			servers = append(servers, u.Redacted())
		}
	}
	return fmt.Errorf("not connected to %s: %w", strings.Join(servers, ", "), err)
}

// stored is a message on the server.
type stored struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	Headers  []byte    `json:"hdrs"`
	Data     []byte    `json:"data"`
}

// isValue reports whether a message of a bucket is a value, not the mark of a removal. One whose
// headers cannot be read is: its data then decides.
func (m *stored) isValue() bool {
	h, err := nats.DecodeHeadersMsg(m.Headers)
	return err != nil || h.Get("KV-Operation") == "" && h.Get(jetstream.MarkerReasonHeader) == ""
}

// wanted is the last message of a subject, which may have wildcards, or the one with a sequence
// number.
type wanted struct {
	Last     string `json:"last_by_subj,omitempty"`
	Sequence uint64 `json:"seq,omitempty"`
}

// message returns a message of the stream; nil if there is none. The leader of the stream answers.
// jetstream.Stream asks any replica instead, also one that does not have yet what the leader has
// acknowledged, and fails if the headers cannot be read.
func (s *store) message(ctx context.Context, w wanted) (*stored, error) {
	body, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	m, err := request(ctx, s.js, func(ctx context.Context) (*stored, error) {
		m, err := s.js.Conn().RequestWithContext(ctx, apiPrefix(s.js)+"STREAM.MSG.GET."+s.name(), body)
		if err != nil {
			return nil, err
		}
		var answer struct {
			Error   *jetstream.APIError `json:"error"`
			Message stored              `json:"message"`
		}
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			return nil, err
		}
		switch {
		case answer.Error == nil:
			return &answer.Message, nil
		case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
			return nil, nil
		default:
			return nil, answer.Error
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read message: %w", explain(s.js.Conn(), err))
	}
	return m, nil
}

// lastSequence returns the sequence number of the last message of some subjects that the leader has;
// 0 if there is none.
func (s *store) lastSequence(ctx context.Context, subjects []string) (last uint64, err error) {
	for _, subject := range subjects {
		m, err := s.message(ctx, wanted{Last: subject})
		if err != nil {
			return 0, err
		}
		if m != nil {
			last = max(last, m.Sequence)
		}
	}
	return last, nil
}

// attempts returns how long each attempt of a request waits for its answer. While one of several
// servers is away, and for 4 to 9 s more, requests are lost: those attempts are short. A single server
// loses none, but takes its time if thousands of agents start at once: with short attempts twice
// as long.
func attempts(conn *nats.Conn) []time.Duration {
	const short = 1500 * time.Millisecond
	if conn.ConnectedClusterName() == "" {
		return []time.Duration{2 * short, 2 * short, 4 * short, 8 * short}
	}
	return append(slices.Repeat([]time.Duration{short}, 8), 2*short, 4*short)
}

// request makes a request that may be repeated, and repeats it if no answer comes, or one that says
// that the servers have no leader.
func request[T any](ctx context.Context, js jetstream.JetStream, ask func(context.Context) (T, error)) (answer T, err error) {
	for _, wait := range attempts(js.Conn()) {
		waiting, cancel := context.WithTimeout(ctx, wait)
		answer, err = ask(waiting)
		if isUnavailable(err) {
			<-waiting.Done()
		} else if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || isForbidden(js.Conn()) {
			cancel()
			break
		}
		cancel()
	}
	return answer, err
}

func apiPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	default:
		return jetstream.DefaultAPIPrefix
	}
}
