package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
)

// Limits are those of the stream and the buckets that a publisher creates. What exists
// already keeps its own limits.
type Limits struct {
	// MaxAge is how long the stream keeps an event. If zero, [DefaultMaxAge].
	MaxAge time.Duration
	// MaxBytes is the size of the stream beyond which the oldest events are removed.
	// If zero, there is no limit.
	MaxBytes int64
	// Replicas is the number of servers that keep each message: 1, 3 or 5. If zero, 1. With
	// fewer than 3, a server that is lost takes what it had acknowledged with it.
	Replicas int
}

func (l *Limits) complete() error {
	if l.MaxBytes < 0 || l.Replicas < 0 || l.Replicas > 5 {
		return fmt.Errorf("Limits has a negative MaxBytes or not 1 to 5 Replicas: %+v", *l)
	}
	return errors.Join(
		option.Default("Limits.MaxAge", &l.MaxAge, DefaultMaxAge),
		option.Default("Limits.Replicas", &l.Replicas, 1),
	)
}

const (
	// DefaultMaxAge is the default of [Limits].MaxAge.
	DefaultMaxAge = 24 * time.Hour
	// LeaseTTL is how long the server keeps the value of an agent in [AgentBucket]
	// that is not renewed. Then another agent may publish as this node, and the node
	// counts as silent.
	LeaseTTL = 30 * time.Second
)

// minAPILevel is that of nats-server 2.11, the first one whose buckets remove the marks
// of deleted keys.
const minAPILevel = 1

// server is the stream and the buckets.
type server struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	state  jetstream.KeyValue
	agents jetstream.KeyValue
	states jetstream.Stream // of the bucket state
	// atOnce is the number of states that are read at the same time.
	atOnce int
}

// stateStream is the stream that has the messages of [StateBucket].
const stateStream = "KV_" + StateBucket

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

// openServer opens the stream and the buckets. It creates what is missing if limits is
// not nil.
func openServer(ctx context.Context, js jetstream.JetStream, limits *Limits) (*server, error) {
	if !js.Conn().IsConnected() {
		return nil, notConnected(js.Conn(), errNotConnected)
	}
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for JetStream: %w", explain(js.Conn(), err))
	}
	if account.API.Level < minAPILevel {
		return nil, fmt.Errorf("nats-server %s is too old: want 2.11 or newer", js.Conn().ConnectedServerVersion())
	}
	s := &server{js: js, atOnce: mostAtOnce}
	if limits != nil {
		s.atOnce = readsAtOnce(js.Conn())
	}
	if s.stream, err = openStream(ctx, js, limits); err != nil {
		return nil, fmt.Errorf("stream %s: %w", EventStream, explain(js.Conn(), err))
	}
	if s.state, err = openBucket(ctx, js, limits, jetstream.KeyValueConfig{Bucket: StateBucket, LimitMarkerTTL: markTTL}); err != nil {
		return nil, fmt.Errorf("bucket %s: %w", StateBucket, explain(js.Conn(), err))
	}
	if s.agents, err = openBucket(ctx, js, limits, jetstream.KeyValueConfig{Bucket: AgentBucket, TTL: LeaseTTL}); err != nil {
		return nil, fmt.Errorf("bucket %s: %w", AgentBucket, explain(js.Conn(), err))
	}
	if s.states, err = js.Stream(ctx, stateStream); err != nil {
		return nil, fmt.Errorf("stream %s: %w", stateStream, explain(js.Conn(), err))
	}
	return s, nil
}

// errNothingPublished is the error of a consumer that came before the first agent.
var errNothingPublished = errors.New("nothing has been published on this server yet")

func openStream(ctx context.Context, js jetstream.JetStream, limits *Limits) (jetstream.Stream, error) {
	subjects := eventSubjects + ".*.*"
	stream, err := js.Stream(ctx, EventStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) && limits != nil {
		maxBytes := limits.MaxBytes
		if maxBytes == 0 {
			maxBytes = -1
		}
		stream, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: EventStream, Subjects: []string{subjects}, Description: "Pod lifecycle events of pleg-pipeline",
			MaxAge: limits.MaxAge, MaxBytes: maxBytes, Replicas: limits.Replicas,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another agent was faster
			stream, err = js.Stream(ctx, EventStream)
		}
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, errNothingPublished
	}
	if err != nil {
		return nil, err
	}
	config := stream.CachedInfo().Config
	if !slices.Contains(config.Subjects, subjects) {
		return nil, fmt.Errorf("it has the subjects %q: want %s", config.Subjects, subjects)
	}
	if config.Retention != jetstream.LimitsPolicy {
		return nil, fmt.Errorf("it has the retention %s: want limits", config.Retention)
	}
	return stream, nil
}

func openBucket(ctx context.Context, js jetstream.JetStream, limits *Limits, config jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	bucket, err := js.KeyValue(ctx, config.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) && limits != nil {
		config.Replicas = limits.Replicas
		config.Description = "Present state of pleg-pipeline"
		bucket, err = js.CreateKeyValue(ctx, config)
		if errors.Is(err, jetstream.ErrBucketExists) { // another agent was faster
			bucket, err = js.KeyValue(ctx, config.Bucket)
		}
	}
	return bucket, err
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
	if last := conn.LastError(); timedOut && errors.Is(last, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w: %w", last, err)
	}
	return err
}

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

// storedMessage is a message in a stream.
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
	m, err := s.ask(ctx, apiPrefix(s.js)+"STREAM.MSG.GET."+stream, body)
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
}

// asked is how long each attempt of ask waits for an answer. With one second in place of three,
// 5,000 agents that start at once take twice as long.
var asked = [...]time.Duration{3 * time.Second, 3 * time.Second, 6 * time.Second, 12 * time.Second}

// ask sends a request for something to read, and sends it again if no answer comes: while a stream
// has no leader, requests are lost.
func (s *server) ask(ctx context.Context, subject string, body []byte) (m *nats.Msg, err error) {
	for _, wait := range asked {
		waiting, cancel := context.WithTimeout(ctx, wait)
		m, err = s.js.Conn().RequestWithContext(waiting, subject, body)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			break
		}
	}
	return m, err
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
