package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
)

// Limits apply to the streams and the buckets that a publisher creates. What exists already
// keeps its own limits, and its number of parts.
type Limits struct {
	// MaxAge is how long a stream keeps an event. If zero, [DefaultMaxAge].
	MaxAge time.Duration
	// MaxBytes is the size of each stream beyond which the oldest events are removed.
	// If zero, there is no limit.
	MaxBytes int64
	// Replicas is the number of servers that keep each message: 1, 3 or 5. If zero, 1. With
	// fewer than 3, a server that is lost takes what it had acknowledged with it.
	Replicas int
	// Parts is the number of streams among which the nodes are divided, 1 to 256, each with
	// buckets of its own: one stream has one leader. If zero, 1.
	Parts int
}

func (l *Limits) complete() error {
	if l.MaxBytes < 0 || l.Replicas < 0 || l.Replicas > 5 || l.Parts < 0 || l.Parts > maxParts {
		return fmt.Errorf("Limits has a negative MaxBytes, not 1 to 5 Replicas, or not 1 to %d Parts: %+v", maxParts, *l)
	}
	return errors.Join(
		option.Default("Limits.MaxAge", &l.MaxAge, DefaultMaxAge),
		option.Default("Limits.Replicas", &l.Replicas, 1),
		option.Default("Limits.Parts", &l.Parts, 1),
	)
}

const (
	// DefaultMaxAge is the default of [Limits].MaxAge.
	DefaultMaxAge = 24 * time.Hour
	// LeaseTTL is how long the server keeps the value of an agent in [AgentBucket]
	// that is not renewed. Then another agent may publish as this node, and the node
	// counts as silent.
	LeaseTTL = 30 * time.Second

	maxParts = 256
)

// minAPILevel is the level of nats-server 2.11, the first one whose buckets remove the marks
// of deleted keys.
const minAPILevel = 1

// errNothingPublished is the error of a watch that began before the first agent.
var errNothingPublished = errors.New("nothing has been published on this server yet")

// countParts returns the number of parts on the server. If there are none and limits is not nil,
// it creates them.
func countParts(ctx context.Context, js jetstream.JetStream, limits *Limits) (int, error) {
	if !js.Conn().IsConnected() {
		return 0, notConnected(js.Conn(), errNotConnected)
	}
	account, err := request(ctx, js, js.AccountInfo)
	if err != nil {
		return 0, fmt.Errorf("ask for JetStream: %w", explain(js.Conn(), err))
	}
	if account.API.Level < minAPILevel {
		return 0, fmt.Errorf("nats-server %s is too old: want 2.11 or newer", js.Conn().ConnectedServerVersion())
	}
	parts, err := partsIn(ctx, js, EventStream)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return parts, err
	}
	if limits == nil {
		return 0, errNothingPublished
	}
	// If only the first part was removed, the second one knows the number.
	parts, err = partsIn(ctx, js, part{number: 1}.nameOf(EventStream))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		parts, err = limits.Parts, nil
	}
	// The first part is created last: if it exists, all do.
	for number := parts - 1; number >= 0 && err == nil; number-- {
		_, err = openPart(ctx, js, part{number, parts}, limits)
	}
	return parts, err
}

// partsKey is the key of the number of parts in the metadata of each stream; none says that there is
// only one.
const partsKey = "pleg-parts"

// partsIn returns the number of parts that a stream is one of.
func partsIn(ctx context.Context, js jetstream.JetStream, name string) (int, error) {
	stream, err := find(ctx, js, name)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", name, explain(js.Conn(), err))
	}
	return partsOf(stream), nil
}

func partsOf(stream jetstream.Stream) int {
	parts, _ := strconv.Atoi(stream.CachedInfo().Config.Metadata[partsKey])
	return max(1, parts)
}

// openPart opens the stream and the buckets of a part. It creates what is missing if limits is not
// nil.
func openPart(ctx context.Context, js jetstream.JetStream, p part, limits *Limits) (s *server, err error) {
	s = &server{part: p, js: js, atOnce: mostAtOnce}
	if limits != nil {
		s.atOnce = readsAtOnce(js.Conn())
	}
	if s.stream, err = openStream(ctx, js, p, limits); err != nil {
		return nil, fmt.Errorf("stream %s: %w", p.nameOf(EventStream), explain(js.Conn(), err))
	}
	if s.states, err = openBucket(ctx, js, limits, jetstream.KeyValueConfig{Bucket: p.nameOf(StateBucket), LimitMarkerTTL: markTTL}); err != nil {
		return nil, err
	}
	_, err = openBucket(ctx, js, limits, jetstream.KeyValueConfig{Bucket: p.nameOf(AgentBucket), TTL: LeaseTTL})
	return s, err
}

func openNode(ctx context.Context, js jetstream.JetStream, node string, limits *Limits) (*server, error) {
	parts, err := countParts(ctx, js, limits)
	if err != nil {
		return nil, err
	}
	return openPart(ctx, js, partOf(node, parts), limits)
}

// openAll opens all parts. It returns nil and an error in the place of each that cannot be opened.
func openAll(ctx context.Context, js jetstream.JetStream, limits *Limits) (parts []*server, errs []error, err error) {
	count, err := countParts(ctx, js, limits)
	if err != nil {
		return nil, nil, err
	}
	parts, errs = make([]*server, count), make([]error, count)
	var opening sync.WaitGroup
	for number := range parts {
		opening.Go(func() {
			p := part{number, count}
			s, err := openPart(ctx, js, p, limits)
			parts[number], errs[number] = s, p.explain(err)
		})
	}
	opening.Wait()
	return parts, errs, nil
}

// errOtherParts means that the fleet has another number of parts: for a watch or an agent, that
// somebody has removed it and created it again.
var errOtherParts = errors.New("the number of parts has changed")

func openStream(ctx context.Context, js jetstream.JetStream, p part, limits *Limits) (jetstream.Stream, error) {
	name, subjects := p.nameOf(EventStream), p.subject("*", "*")
	stream, err := find(ctx, js, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && limits != nil {
		config := jetstream.StreamConfig{
			Name: name, Subjects: []string{subjects}, Description: "Pod lifecycle events of pleg-pipeline",
			MaxAge: limits.MaxAge, MaxBytes: cmp.Or(limits.MaxBytes, -1), Replicas: limits.Replicas,
		}
		if p.parts > 1 {
			config.Metadata = map[string]string{partsKey: strconv.Itoa(p.parts)}
		}
		stream, err = js.CreateStream(ctx, config)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another agent was faster
			stream, err = find(ctx, js, name)
		}
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, whyMissing(ctx, js, p)
	}
	if err != nil {
		return nil, err
	}
	if has := partsOf(stream); has != p.parts {
		return nil, fmt.Errorf("%w: it is one of %d, not of %d", errOtherParts, has, p.parts)
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

// whyMissing returns why a part has no stream. If there are fewer parts now, it never comes back.
func whyMissing(ctx context.Context, js jetstream.JetStream, p part) error {
	if has, err := partsIn(ctx, js, EventStream); err == nil && has <= p.number {
		return fmt.Errorf("%w: there are %d, and this is number %d", errOtherParts, has, p.number)
	}
	return errNothingPublished
}

func openBucket(ctx context.Context, js jetstream.JetStream, limits *Limits, config jetstream.KeyValueConfig) (jetstream.Stream, error) {
	stream, err := find(ctx, js, "KV_"+config.Bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) && limits != nil {
		config.Replicas = limits.Replicas
		config.Description = "Present state of pleg-pipeline"
		_, err = js.CreateKeyValue(ctx, config)
		if err == nil || errors.Is(err, jetstream.ErrBucketExists) { // another agent was faster
			stream, err = find(ctx, js, "KV_"+config.Bucket)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", config.Bucket, explain(js.Conn(), err))
	}
	return stream, nil
}
