package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
)

// Limits apply to the stream that a publisher creates. An existing stream keeps its own limits.
type Limits struct {
	// MaxAge is how long the stream keeps an event, and the state of a pod that no agent publishes
	// again. If zero, [DefaultMaxAge].
	MaxAge time.Duration
	// MaxBytes is the size of the stream beyond which it refuses new messages: events then wait in the
	// history of each node until old ones leave. If zero, there is no limit.
	MaxBytes int64
	// MaxAgentBytes is the size of the bucket. If zero, there is no limit, or [DefaultMaxAgentBytes] if MaxBytes is set: an
	// account may require that each size is.
	MaxAgentBytes int64
	// Replicas is the number of servers that keep each message: 1, 3 or 5. If zero, 1. With fewer
	// than 3, messages that a server has acknowledged are lost with that server.
	Replicas int
}

const (
	// DefaultMaxAge is the default of [Limits].MaxAge.
	DefaultMaxAge = 24 * time.Hour
	// DefaultMaxAgentBytes is enough for 5,000 agents.
	DefaultMaxAgentBytes = 32 << 20
	// LeaseTTL is how old the value of an agent in [AgentBucket] may be. Then another agent may publish as this node, and
	// the node counts as silent.
	LeaseTTL = 15 * time.Second
	// minAPILevel is the level of nats-server 2.12, the first that stores a batch of messages as a whole.
	minAPILevel = 2
)

func (l *Limits) complete() error {
	if l.MaxBytes < 0 || l.MaxAgentBytes < 0 || l.Replicas < 0 || l.Replicas > 5 {
		return fmt.Errorf("Limits has a negative MaxBytes or MaxAgentBytes, or not 1 to 5 Replicas: %+v", *l)
	}
	if l.MaxBytes > 0 && l.MaxAgentBytes == 0 {
		l.MaxAgentBytes = DefaultMaxAgentBytes
	}
	return errors.Join(
		option.Default("Limits.MaxAge", &l.MaxAge, DefaultMaxAge),
		option.Default("Limits.Replicas", &l.Replicas, 1),
	)
}

// Create creates the stream of a cluster and the bucket, for agents without the permission. It is
// an error if the stream exists with other limits, such as one that an agent created before.
func Create(ctx context.Context, js jetstream.JetStream, cluster string, limits Limits) error {
	if err := errors.Join(checkName("cluster", cluster, maxCluster), limits.complete()); err != nil {
		return fmt.Errorf("create fleet: %w", err)
	}
	if stream, err := js.Stream(ctx, StreamName(cluster)); err == nil && !stream.CachedInfo().Config.AllowAtomicPublish { // of an older version
		config := stream.CachedInfo().Config
		config.AllowAtomicPublish = true
		if _, err := js.UpdateStream(ctx, config); err != nil {
			return fmt.Errorf("create fleet: allow batches: %w", explain(js.Conn(), err))
		}
	}
	s, err := openStream(ctx, js, new(patience), cluster, "", &limits)
	if err == nil {
		_, err = openBucket(ctx, js, &limits)
	}
	if err != nil {
		return fmt.Errorf("create fleet: %w", err)
	}
	config := s.stream.CachedInfo().Config
	if has := (Limits{config.MaxAge, max(0, config.MaxBytes), limits.MaxAgentBytes, config.Replicas}); has != limits {
		return fmt.Errorf("create fleet: stream %s exists with %+v, want %+v: the nats command changes limits", config.Name, has, limits)
	}
	return nil
}

// openStream opens the stream of a cluster, or a mirror of it with another name. It creates the stream if it is missing
// and limits is not nil.
func openStream(ctx context.Context, js jetstream.JetStream, p *patience, cluster, name string, limits *Limits) (*store, error) {
	if !js.Conn().IsConnected() {
		return nil, explain(js.Conn(), errors.New("no server answers"))
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout())
	defer cancel()
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for JetStream: %w", explain(js.Conn(), err))
	}
	if account.API.Level < minAPILevel {
		return nil, fmt.Errorf("nats-server %s is too old: want 2.12 or newer", js.Conn().ConnectedServerVersion())
	}
	wanted := jetstream.StreamConfig{
		Name: cmp.Or(name, StreamName(cluster)), Subjects: []string{subjectPrefix + token(cluster) + ".>"},
		Description: "Pod lifecycle events and states of pleg-pipeline", Compression: jetstream.S2Compression, Discard: jetstream.DiscardNew,
		AllowAtomicPublish: true,
	}
	stream, err := js.Stream(ctx, wanted.Name)
	if limits != nil && errors.Is(err, jetstream.ErrStreamNotFound) {
		wanted.MaxAge, wanted.MaxBytes, wanted.Replicas = limits.MaxAge, cmp.Or(limits.MaxBytes, -1), limits.Replicas
		if stream, err = js.CreateStream(ctx, wanted); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another agent was faster
			stream, err = js.Stream(ctx, wanted.Name)
		}
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, errors.New("nothing has been published for this cluster yet, or only by agents of version 1: update those")
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", wanted.Name, explain(js.Conn(), err))
	}
	has := stream.CachedInfo().Config
	switch {
	case has.Mirror != nil:
	case !slices.Equal(has.Subjects, wanted.Subjects):
		return nil, fmt.Errorf("stream %s: it has the subjects %q: want %s", has.Name, has.Subjects, wanted.Subjects[0])
	case has.Retention != jetstream.LimitsPolicy:
		return nil, fmt.Errorf("stream %s: it has the retention %s: want limits", has.Name, has.Retention)
	case !has.AllowAtomicPublish:
		return nil, fmt.Errorf("stream %s: it does not allow atomic batches: \"pleg-pipeline fleet create\" allows them", has.Name)
	}
	return &store{patience: p, js: js, stream: stream}, nil
}

// openBucket opens the bucket of the agents. It creates it if it is missing.
func openBucket(ctx context.Context, js jetstream.JetStream, limits *Limits) (jetstream.KeyValue, error) {
	bucket, err := js.KeyValue(ctx, AgentBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: AgentBucket, TTL: DefaultMaxAge, MaxBytes: limits.MaxAgentBytes, Replicas: limits.Replicas, Description: "Agents of pleg-pipeline",
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another agent was faster
			bucket, err = js.KeyValue(ctx, AgentBucket)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", AgentBucket, explain(js.Conn(), err))
	}
	return bucket, nil
}
