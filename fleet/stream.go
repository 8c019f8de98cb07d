package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
)

// Limits apply to the stream that a publisher creates. One that exists keeps its own limits.
type Limits struct {
	// MaxAge is how long the stream keeps an event, and the state of a pod that no agent publishes
	// again. If zero, [DefaultMaxAge].
	MaxAge time.Duration
	// MaxBytes is the size of the stream beyond which the oldest messages are removed. If zero,
	// there is no limit. Agents then publish again what is in the older half: leave room for
	// several times the states of all pods.
	MaxBytes int64
	// Replicas is the number of servers that keep each message: 1, 3 or 5. If zero, 1. With
	// fewer than 3, a server that is lost takes what it had acknowledged with it.
	Replicas int
}

func (l *Limits) complete() error {
	if l.MaxBytes < 0 || l.Replicas < 0 || l.Replicas > 5 {
		return fmt.Errorf("Limits has a negative MaxBytes, or not 1 to 5 Replicas: %+v", *l)
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

// minAPILevel is the level of nats-server 2.11, the first one that compares the sequence number of
// another subject than that of the message.
const minAPILevel = 1

// errNothingPublished is the error of a reader that began before the first agent.
var errNothingPublished = errors.New("nothing has been published for this cluster yet")

// openStream opens the stream of a cluster. It creates the stream and the bucket if they are missing
// and limits is not nil.
func openStream(ctx context.Context, js jetstream.JetStream, cluster string, limits *Limits) (*store, error) {
	if !js.Conn().IsConnected() {
		return nil, notConnected(js.Conn(), errNotConnected)
	}
	account, err := request(ctx, js, js.AccountInfo)
	if err != nil {
		return nil, fmt.Errorf("ask for JetStream: %w", explain(js.Conn(), err))
	}
	if account.API.Level < minAPILevel {
		return nil, fmt.Errorf("nats-server %s is too old: want 2.11 or newer", js.Conn().ConnectedServerVersion())
	}
	name, subjects := StreamName(cluster), subjectsOf(cluster, nil)
	if limits != nil {
		if _, err := openBucket(ctx, js, limits); err != nil {
			return nil, err
		}
	}
	s, err := openStore(ctx, js, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if limits == nil {
			return nil, whyMissing(ctx, js, cluster)
		}
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: subjects, Description: "Pod lifecycle events and states of pleg-pipeline", Compression: jetstream.S2Compression,
			MaxAge: limits.MaxAge, MaxBytes: cmp.Or(limits.MaxBytes, -1), Replicas: limits.Replicas,
		})
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another agent was faster
			s, err = openStore(ctx, js, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, explain(js.Conn(), err))
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

// openBucket opens [AgentBucket]. It creates it if it is missing and limits is not nil.
func openBucket(ctx context.Context, js jetstream.JetStream, limits *Limits) (*store, error) {
	s, err := openStore(ctx, js, "KV_"+AgentBucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) && limits != nil {
		_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: AgentBucket, TTL: LeaseTTL, Replicas: limits.Replicas, Description: "Agents of pleg-pipeline",
		})
		if err == nil || errors.Is(err, jetstream.ErrBucketExists) { // another agent was faster
			s, err = openStore(ctx, js, "KV_"+AgentBucket)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", AgentBucket, explain(js.Conn(), err))
	}
	return s, nil
}

// whyMissing returns why a cluster has no stream: if there are agents of the first layout, it names
// them.
func whyMissing(ctx context.Context, js jetstream.JetStream, cluster string) error {
	if _, err := openStore(ctx, js, oldStream); err != nil {
		return errNothingPublished
	}
	nodes, err := agents(ctx, js, cluster, nil)
	if err != nil || len(nodes) == 0 {
		return errNothingPublished
	}
	names := make([]string, 0, len(nodes))
	for name := range nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Errorf("%w, except by agents of an older version, which use %s: update those of %s", errNothingPublished, oldStream, strings.Join(names, ", "))
}
