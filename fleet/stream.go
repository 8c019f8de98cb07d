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
	// Replicas is the number of servers that keep each message: 1, 3 or 5. If zero, 1. With
	// fewer than 3, a server that is lost takes what it had acknowledged with it.
	Replicas int
}

const (
	// DefaultMaxAge is the default of [Limits].MaxAge.
	DefaultMaxAge = 24 * time.Hour
	// LeaseTTL is how long the server keeps the value of an agent in [AgentBucket]
	// that is not renewed. Then another agent may publish as this node, and the node
	// counts as silent.
	LeaseTTL = 30 * time.Second
	// minAPILevel is the level of nats-server 2.11, the first that can compare the sequence number
	// of another subject than the message's.
	minAPILevel = 1
)

func (l *Limits) complete() error {
	if l.MaxBytes < 0 || l.Replicas < 0 || l.Replicas > 5 {
		return fmt.Errorf("Limits has a negative MaxBytes, or not 1 to 5 Replicas: %+v", *l)
	}
	return errors.Join(
		option.Default("Limits.MaxAge", &l.MaxAge, DefaultMaxAge),
		option.Default("Limits.Replicas", &l.Replicas, 1),
	)
}

// Create creates the stream of a cluster and the bucket, for agents that may not. It is an error if
// the stream exists with other limits: an agent that was faster has created it.
func Create(ctx context.Context, js jetstream.JetStream, cluster string, limits Limits) error {
	if err := errors.Join(checkName("cluster", cluster, maxCluster), limits.complete()); err != nil {
		return fmt.Errorf("create fleet: %w", err)
	}
	s, err := openStream(ctx, js, new(patience), cluster, &limits)
	if err == nil {
		_, err = openBucket(ctx, js, new(patience), &limits)
	}
	if err != nil {
		return fmt.Errorf("create fleet: %w", err)
	}
	config := s.stream.CachedInfo().Config
	if has := (Limits{config.MaxAge, max(0, config.MaxBytes), config.Replicas}); has != limits {
		return fmt.Errorf("create fleet: stream %s exists with %+v, want %+v: the nats command changes limits", config.Name, has, limits)
	}
	return nil
}

// errNothingPublished is the error of a reader that began before the first agent.
var errNothingPublished = errors.New("nothing has been published for this cluster yet, except by agents of version 1, if there are any: update them")

// openStream opens the stream of a cluster. It creates the stream if it is missing and limits is not nil.
func openStream(ctx context.Context, js jetstream.JetStream, p *patience, cluster string, limits *Limits) (*store, error) {
	if !js.Conn().IsConnected() {
		return nil, explain(js.Conn(), errors.New("no server answers"))
	}
	bound, cancel := context.WithTimeout(ctx, p.timeout())
	defer cancel()
	account, err := js.AccountInfo(bound)
	if err != nil {
		return nil, fmt.Errorf("ask for JetStream: %w", explain(js.Conn(), err))
	}
	if account.API.Level < minAPILevel {
		return nil, fmt.Errorf("nats-server %s is too old: want 2.11 or newer", js.Conn().ConnectedServerVersion())
	}
	name, subjects := StreamName(cluster), []string{subjectPrefix + token(cluster) + ".>"}
	s, err := openStore(ctx, js, p, name, limits, func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: subjects, Description: "Pod lifecycle events and states of pleg-pipeline", Compression: jetstream.S2Compression,
			MaxAge: limits.MaxAge, MaxBytes: cmp.Or(limits.MaxBytes, -1), Discard: jetstream.DiscardNew, Replicas: limits.Replicas,
		})
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, errNothingPublished
	}
	if err != nil {
		return nil, err
	}
	config := s.stream.CachedInfo().Config
	if !slices.Equal(config.Subjects, subjects) {
		return nil, fmt.Errorf("stream %s: it has the subjects %q: want %s", name, config.Subjects, subjects[0])
	}
	if config.Retention != jetstream.LimitsPolicy {
		return nil, fmt.Errorf("stream %s: it has the retention %s: want limits", name, config.Retention)
	}
	return s, nil
}

// openBucket opens the stream of [AgentBucket]. It creates it if it is missing and limits is not nil.
func openBucket(ctx context.Context, js jetstream.JetStream, p *patience, limits *Limits) (*store, error) {
	return openStore(ctx, js, p, "KV_"+AgentBucket, limits, func(ctx context.Context) error {
		_, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: AgentBucket, TTL: LeaseTTL, Replicas: limits.Replicas, Description: "Agents of pleg-pipeline",
		})
		return err
	})
}

// openStore opens a stream, which it creates if it is missing and limits is not nil.
func openStore(ctx context.Context, js jetstream.JetStream, p *patience, name string, limits *Limits, create func(context.Context) error) (*store, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout())
	defer cancel()
	stream, err := js.Stream(ctx, name)
	if limits != nil && errors.Is(err, jetstream.ErrStreamNotFound) {
		err = create(ctx)
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) || errors.Is(err, jetstream.ErrBucketExists) { // another agent was faster
			stream, err = js.Stream(ctx, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, explain(js.Conn(), err))
	}
	return &store{p, js, stream}, nil
}
