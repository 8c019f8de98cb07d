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

// server is the stream and the buckets of a part.
type server struct {
	part

	js     jetstream.JetStream
	stream jetstream.Stream
	states jetstream.Stream // of StateBucket
	// atOnce is the number of states that are read at the same time.
	atOnce int
}

const (
	// requestTimeout bounds one request of nats.go, such as to a leader that is gone.
	requestTimeout = 10 * time.Second
	// mostAtOnce are the states that are read at the same time: by a watch, and by an agent
	// whose server is a second away. Agents near their server read one: thousands may start at
	// once, and nats-server drops all requests if 10,000 wait.
	mostAtOnce = 16
)

// readsAtOnce is how many states an agent reads at the same time: more the longer it waits for
// each.
func readsAtOnce(conn *nats.Conn) int {
	rtt, err := conn.RTT()
	if err != nil {
		return 1
	}
	return min(mostAtOnce, 1+int(rtt/(20*time.Millisecond)))
}

// errReplaced means that a message or a state did not follow what this agent published
// last.
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
	timedOut := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
	if timedOut && isForbidden(conn) {
		return fmt.Errorf("%w: %w", conn.LastError(), err)
	}
	return err
}

// isForbidden reports whether the server said last that something is not permitted.
func isForbidden(conn *nats.Conn) bool {
	return errors.Is(conn.LastError(), nats.ErrPermissionViolation)
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

type storedMessage struct {
	Sequence uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	Headers  []byte    `json:"hdrs"`
	Data     []byte    `json:"data"`
}

// isValue reports whether a message of a bucket is a value, not the mark of a removal. One whose
// headers cannot be read is: its data then decides.
func (m *storedMessage) isValue() bool {
	h, err := nats.DecodeHeadersMsg(m.Headers)
	return err != nil || h.Get("KV-Operation") == "" && h.Get(jetstream.MarkerReasonHeader) == ""
}

// wanted is the last message of a subject, which may have wildcards, or the one with a sequence
// number.
type wanted struct {
	Last     string `json:"last_by_subj,omitempty"`
	Sequence uint64 `json:"seq,omitempty"`
}

// message returns a message of a stream; nil if there is none. The leader of the stream answers.
// jetstream.Stream asks any replica instead, also one that does not have yet what the leader has
// acknowledged, and fails if the headers cannot be read.
func (s *server) message(ctx context.Context, stream string, w wanted) (*storedMessage, error) {
	body, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	return request(ctx, s.js, func(ctx context.Context) (*storedMessage, error) {
		m, err := s.js.Conn().RequestWithContext(ctx, apiPrefix(s.js)+"STREAM.MSG.GET."+stream, body)
		if err != nil {
			return nil, err
		}
		var answer struct {
			Error   *jetstream.APIError `json:"error"`
			Message storedMessage       `json:"message"`
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

func find(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	return request(ctx, js, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, name) })
}

// lastSequence returns the sequence number of the last message of some subjects; 0 if
// there is none.
func (s *server) lastSequence(ctx context.Context, stream string, subjects ...string) (uint64, error) {
	var last uint64
	for _, subject := range subjects {
		m, err := s.message(ctx, stream, wanted{Last: subject})
		if err != nil {
			return 0, fmt.Errorf("read last message: %w", explain(s.js.Conn(), err))
		}
		if m != nil {
			last = max(last, m.Sequence)
		}
	}
	return last, nil
}
