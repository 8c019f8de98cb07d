package cri

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
)

// Defaults of [Options].
const (
	// DefaultTimeout is the kubelet's runtimeRequestTimeout.
	DefaultTimeout = 2 * time.Minute
	// DefaultConnectTimeout bounds a connection attempt and the call of
	// [Client.Check].
	DefaultConnectTimeout = 5 * time.Second
	// DefaultMaxRecvBytes is the kubelet's limit. A node with some thousand
	// containers exceeds grpc's default of 4 MiB.
	DefaultMaxRecvBytes = 16 << 20
)

// Options configure a [Client]. The zero value is usable.
type Options struct {
	// ListTimeout is the deadline of each list call. If zero, DefaultTimeout.
	ListTimeout time.Duration
	// StatusTimeout is the deadline of each status call, counted from the time it
	// is sent. If zero, DefaultTimeout.
	StatusTimeout time.Duration
	// ConnectTimeout is the deadline of one connection attempt and of Check. If zero,
	// DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// MaxRecvBytes is the maximum size of an answer. If zero, DefaultMaxRecvBytes.
	MaxRecvBytes int
	// Logger receives warnings about malformed items. Its handler must not block: calls wait for it. If
	// nil, nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics until [Client.Close]. If nil, they are not registered.
	Registerer prometheus.Registerer
	// KubeletMetricNames gives the runtime_operations metrics the kubelet's
	// prefix kubelet_ in place of pleg_.
	KubeletMetricNames bool
	// DialOptions are applied after the client's own, such as interceptors. With a
	// grpc.WithContextDialer the client connects elsewhere, and knows neither the state
	// of the socket nor the runtime's process.
	DialOptions []grpc.DialOption
}

func (o Options) withDefaults() (Options, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	err := cmp.Or(
		option.Default("ListTimeout", &o.ListTimeout, DefaultTimeout),
		option.Default("StatusTimeout", &o.StatusTimeout, DefaultTimeout),
		option.Default("ConnectTimeout", &o.ConnectTimeout, DefaultConnectTimeout),
		option.Default("MaxRecvBytes", &o.MaxRecvBytes, DefaultMaxRecvBytes),
	)
	if err != nil {
		return o, fmt.Errorf("cri: %w", option.Invalid(err))
	}
	return o, nil
}
