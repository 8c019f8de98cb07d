package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Defaults of [Options].
const (
	DefaultMinBackoff = 100 * time.Millisecond
	DefaultMaxBackoff = 10 * time.Second
	DefaultKeepalive  = 30 * time.Second
)

// Options configure a [Client]. The zero value is fit for use.
type Options struct {
	// MinBackoff and MaxBackoff are the shortest and the longest time between
	// two attempts of a watch to connect; each attempt doubles it, and a part
	// of it is random. If zero, [DefaultMinBackoff] and [DefaultMaxBackoff].
	MinBackoff, MaxBackoff time.Duration
	// Keepalive is how long the server may be silent before it is asked for a
	// sign of life, and then how long that may take; gRPC makes the former 10 s
	// at least. If zero, [DefaultKeepalive].
	Keepalive time.Duration
	// Dial connects to the server. If nil, to the unix socket.
	Dial func(context.Context) (net.Conn, error)
	// Logger gets lost connections. If nil, nothing is logged.
	Logger *slog.Logger
}

// Client talks to one server. Its methods are safe for concurrent use. Each
// watch has a connection of its own; all other calls share one, which is made
// when it is first needed.
type Client struct {
	options Options
	calls   *link
}

// New returns a client of the server on a unix socket. It does not connect yet:
// the error names the option that is bad.
func New(socket string, o Options) (*Client, error) {
	if err := o.complete(socket); err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	calls, err := newLink(o)
	if err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	return &Client{options: o, calls: calls}, nil
}

func (o *Options) complete(socket string) error {
	if o.Dial == nil && socket == "" {
		return errors.New("the path of the socket is empty")
	}
	shortest := DefaultMinBackoff
	if o.MaxBackoff > 0 {
		shortest = min(shortest, o.MaxBackoff)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"MinBackoff", &o.MinBackoff, shortest},
		{"MaxBackoff", &o.MaxBackoff, max(DefaultMaxBackoff, o.MinBackoff)},
		{"Keepalive", &o.Keepalive, DefaultKeepalive},
	} {
		if *d.value < 0 {
			return fmt.Errorf("Options.%s must be positive, got %v", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if o.MinBackoff > o.MaxBackoff {
		return fmt.Errorf("Options.MinBackoff must not exceed Options.MaxBackoff, got %v and %v", o.MinBackoff, o.MaxBackoff)
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Close ends the shared connection, and the calls on it. A watch ends with its
// own context.
func (c *Client) Close() error { return c.calls.Close() }

// Pod is what the server knows of one pod.
type Pod struct {
	UID pleg.PodUID
	// Status is nil if the last inspection failed, or the first has not ended
	// yet, and Err then says so: it is an [InspectionError].
	Status *pleg.PodStatus
	Err    error
	// CurrentAsOf is the time up to which this is known to be true; zero before
	// the first inspection has ended.
	CurrentAsOf time.Time
}

// InspectionError is the error of the last inspection of a pod, as the server
// tells it, or that there has been none.
type InspectionError struct{ Text string }

// Error implements error.
func (e *InspectionError) Error() string { return e.Text }

// Pods returns what the server knows of all pods, in the order of the UIDs. It
// blocks until the server has answered, or ctx ends.
func (c *Client) Pods(ctx context.Context) ([]Pod, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.calls.pleg.ListPods(ctx, &plegv1.ListPodsRequest{})
	if err != nil {
		return nil, c.calls.failed("list pods", err)
	}
	var pods []Pod
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return pods, nil
		}
		if err != nil {
			return nil, c.calls.failed("list pods", err)
		}
		p := m.GetPod()
		pods = append(pods, Pod{
			UID:         pleg.PodUID(p.GetUid()),
			Status:      wire.ToStatus(p.GetStatus()),
			Err:         inspectionError(p.GetError()),
			CurrentAsOf: wire.ToTime(p.GetCurrentAsOf()),
		})
	}
}

// PodStatus returns the pod's status. Unless newerThan is zero it blocks until
// an observation that began after that time has been applied, or ctx ends. The
// error is an [InspectionError] if the last inspection of the pod failed. A pod
// that the server does not know, or that is gone, has a status with nothing but
// its UID.
func (c *Client) PodStatus(ctx context.Context, uid pleg.PodUID, newerThan time.Time) (*pleg.PodStatus, error) {
	m, err := c.calls.pleg.GetPodStatus(ctx, &plegv1.GetPodStatusRequest{PodUid: string(uid), NewerThan: wire.FromTime(newerThan)})
	if err != nil {
		return nil, c.calls.failed("status of pod "+string(uid), err)
	}
	return wire.ToStatus(m.GetStatus()), inspectionError(m.GetError())
}

func inspectionError(text string) error {
	if text == "" {
		return nil
	}
	return &InspectionError{text}
}
