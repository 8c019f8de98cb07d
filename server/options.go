package server

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of [Options].
const (
	DefaultMaxConnections  = 256
	DefaultMaxStreams      = 64
	DefaultMaxWatchers     = 128
	DefaultMaxRequestBytes = 64 << 10
	DefaultBuffer          = 1000
	DefaultMaxBuffer       = 4096
	DefaultKeepalive       = 30 * time.Second
	DefaultGrace           = time.Second
)

// Options configure a [Server]. The zero value is fit for use.
type Options struct {
	// MaxConnections is the number of connections at a time. If zero,
	// [DefaultMaxConnections].
	MaxConnections int
	// MaxStreams is the number of calls at a time on one connection; a gRPC
	// client waits with what is more. If zero, [DefaultMaxStreams].
	MaxStreams int
	// MaxWatchers is the number of Watch calls at a time on all connections.
	// If zero, [DefaultMaxWatchers].
	MaxWatchers int
	// MaxRequestBytes is the size of a request. If zero,
	// [DefaultMaxRequestBytes].
	MaxRequestBytes int
	// Buffer is the number of events that may wait for a watcher that does not
	// say, MaxBuffer for one that does; some 200 bytes each. If zero,
	// [DefaultBuffer], or MaxBuffer if that is less, and [DefaultMaxBuffer].
	Buffer    int
	MaxBuffer int
	// Keepalive is how long a connection may be silent before it is asked for
	// a sign of life, and then how long that may take. If zero,
	// [DefaultKeepalive].
	Keepalive time.Duration
	// Grace is how long connections may take to end when the server does. If
	// zero, [DefaultGrace].
	Grace time.Duration
	// Logger gets what an operator should know. If nil, nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics. If nil, they are not registered.
	Registerer prometheus.Registerer
}

func (o *Options) complete() error {
	if o.Buffer == 0 && o.MaxBuffer > 0 {
		o.Buffer = min(DefaultBuffer, o.MaxBuffer)
	}
	for _, n := range []struct {
		name  string
		value *int
		def   int
	}{
		{"MaxConnections", &o.MaxConnections, DefaultMaxConnections},
		{"MaxStreams", &o.MaxStreams, DefaultMaxStreams},
		{"MaxWatchers", &o.MaxWatchers, DefaultMaxWatchers},
		{"MaxRequestBytes", &o.MaxRequestBytes, DefaultMaxRequestBytes},
		{"Buffer", &o.Buffer, DefaultBuffer},
		{"MaxBuffer", &o.MaxBuffer, max(DefaultMaxBuffer, o.Buffer)},
	} {
		if *n.value < 0 {
			return fmt.Errorf("Options.%s must be positive, got %d", n.name, *n.value)
		}
		if *n.value == 0 {
			*n.value = n.def
		}
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Keepalive", &o.Keepalive, DefaultKeepalive},
		{"Grace", &o.Grace, DefaultGrace},
	} {
		if *d.value < 0 {
			return fmt.Errorf("Options.%s must be positive, got %v", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if o.Buffer > o.MaxBuffer {
		return fmt.Errorf("Options.Buffer must not exceed Options.MaxBuffer, got %d and %d", o.Buffer, o.MaxBuffer)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
