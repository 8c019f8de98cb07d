package simruntime

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of [Options].
const (
	// DefaultStreamBatch is the number of items containerd 2.4 puts in one
	// message of a streaming list.
	DefaultStreamBatch = 5000
	// DefaultEventBuffer is the number of events kept for one client.
	DefaultEventBuffer = 1000
	// DefaultMaxMessageBytes is the limit that containerd and the kubelet use.
	DefaultMaxMessageBytes = 16 << 20
)

// Errors that a caller of the control API may check for. The RPCs answer
// them as codes.NotFound, codes.FailedPrecondition and codes.AlreadyExists.
var (
	// ErrNotFound is returned when no pod, sandbox or container has the id.
	ErrNotFound = errors.New("not found")
	// ErrState is returned when the object exists but is in a state that does
	// not allow the step, such as starting an exited container.
	ErrState = errors.New("wrong state")
	// ErrExists is returned when a pod, or an attempt of one, exists already.
	ErrExists = errors.New("already exists")
)

// Options configure a [Runtime]. The zero value is a runtime without latency,
// without limits and without faults.
type Options struct {
	// Seed determines ids, UIDs, names, latencies and injected probabilities.
	// Zero is a seed like any other.
	Seed uint64

	// Profile is the latency of each RPC. If nil, there is none. It can be
	// changed by [Runtime.SetProfile].
	Profile Profile

	// MaxConcurrent bounds the calls that execute at once; the others wait in
	// the order of arrival. GetContainerEvents does not count. If zero, there
	// is no bound. It can be changed by [Runtime.SetMaxConcurrent].
	MaxConcurrent int

	// StreamBatch is the number of items in one message of StreamPodSandboxes
	// and StreamContainers. If zero, DefaultStreamBatch.
	StreamBatch int

	// EventBuffer is the number of events kept for a client of
	// GetContainerEvents that does not read; what does not fit is dropped and
	// counted. If zero, DefaultEventBuffer.
	EventBuffer int

	// EventRetention is how long events are kept while there is no client; the
	// first client to come gets them, old times and all (containerd: 5 min).
	// If zero, they are not kept.
	EventRetention time.Duration

	// DeletedLinger is how long a sandbox stays listed (NOTREADY) after its
	// DELETED event (containerd: up to 4 ms). If zero, it goes before the event.
	DeletedLinger time.Duration

	// DualStack gives each pod an IPv6 address besides the IPv4 one.
	DualStack bool

	// MaxMessageBytes bounds one answer; a longer one fails with
	// ResourceExhausted. If zero, DefaultMaxMessageBytes.
	MaxMessageBytes int

	// Logger hears of starts and stops (Info) and calls (Debug). If nil,
	// nothing is logged.
	Logger *slog.Logger
}

func (o Options) validate() error {
	switch {
	case o.MaxConcurrent < 0:
		return fmt.Errorf("Options.MaxConcurrent is negative: %d", o.MaxConcurrent)
	case o.StreamBatch < 0:
		return fmt.Errorf("Options.StreamBatch is negative: %d", o.StreamBatch)
	case o.EventBuffer < 0:
		return fmt.Errorf("Options.EventBuffer is negative: %d", o.EventBuffer)
	case o.EventRetention < 0:
		return fmt.Errorf("Options.EventRetention is negative: %v", o.EventRetention)
	case o.DeletedLinger < 0:
		return fmt.Errorf("Options.DeletedLinger is negative: %v", o.DeletedLinger)
	case o.MaxMessageBytes < 0:
		return fmt.Errorf("Options.MaxMessageBytes is negative: %d", o.MaxMessageBytes)
	}
	if err := o.Profile.validate(); err != nil {
		return fmt.Errorf("Options.Profile: %w", err)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.StreamBatch == 0 {
		o.StreamBatch = DefaultStreamBatch
	}
	if o.EventBuffer == 0 {
		o.EventBuffer = DefaultEventBuffer
	}
	if o.MaxMessageBytes == 0 {
		o.MaxMessageBytes = DefaultMaxMessageBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Runtime is a simulated container runtime: pods, sandboxes and containers,
// the faults injected, and the counters. It starts no goroutine;
// [Runtime.Serve] and [Runtime.Churn] work while they are called. All methods
// may be called from any number of goroutines.
//
// Inside a synctest bubble, create it in the bubble.
type Runtime struct {
	opts   Options
	log    *slog.Logger
	faults *faultSet
	limit  *limiter
	stats  *counters
	hub    *hub

	// nextGone is the time (Unix ns) at which the first lingering sandbox
	// leaves the lists; zero when none lingers.
	nextGone atomic.Int64

	podListCache       atomic.Pointer[encodedList]
	containerListCache atomic.Pointer[encodedList]

	mu    sync.RWMutex // guards what follows
	rng   *rand.Rand
	state state
}

// New returns a runtime without pods. It fails only on invalid options, and
// the error names the field.
func New(opts Options) (*Runtime, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("simruntime: %w", err)
	}
	opts = opts.withDefaults()
	return &Runtime{
		opts:   opts,
		log:    opts.Logger,
		faults: newFaultSet(opts.Seed, opts.Profile),
		limit:  newLimiter(opts.MaxConcurrent),
		stats:  newCounters(),
		hub:    newHub(opts.Seed, opts.EventBuffer, opts.EventRetention),
		rng:    newRand(opts.Seed, "state"),
		state:  newState(),
	}, nil
}

// newRand returns a separate sequence for each use of the seed, so that one use
// does not affect another.
func newRand(seed uint64, use string) *rand.Rand {
	stream := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(use) {
		stream = (stream ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, stream))
}
