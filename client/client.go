// Package client watches a pipeline in another process on the same node.
//
//	c, err := client.New("/run/pleg-pipeline/pleg.sock", client.Options{})
//	...
//	defer c.Close()
//	for ev, err := range c.Watch(ctx, pleg.SubscribeOptions{Replay: true}) {
//		if err != nil {
//			return err // no attempt can succeed
//		}
//		...
//	}
//
// [Client.Watch] keeps the contract of a subscription when connections break and the
// server restarts: it reconnects and resumes after its last event. If the server no
// longer contains the next events, the watch gets a Gap and a replay of the current state.
// Watch starts no goroutine. [Client.Subscribe] starts one when the subscription is first read,
// [Client.RequestRelist] one while requests are being sent.
//
// All other calls end with an error that wraps [pleg.ErrNoDaemon] while the daemon is away:
// within a minute if it is stopped and answers nothing. The caller may repeat them.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// minBackoff and maxBackoff are the shortest and the longest time between two attempts of a watch
// to connect: a daemon restarts within a second, and a daemon that is down for long is asked
// rarely. The time doubles with each attempt, unless the connection lasted longer than that, and
// half of it is random.
const minBackoff, maxBackoff = 100 * time.Millisecond, 10 * time.Second

// pingAfter is the time without data after which the client pings the server, and the time in which
// the server must answer. The server does the same.
const pingAfter = 30 * time.Second

// Options configure a [Client]. The zero value is ready to use.
type Options struct {
	// Dial connects to the server. If nil, it connects to the unix socket.
	Dial func(context.Context) (net.Conn, error)
	// Logger logs failed and broken connections. If nil, nothing is logged.
	Logger *slog.Logger
	// Disconnected, if not nil, is called when a watch or a subscription cannot connect or loses
	// its connection, with the time until the next attempt, by the goroutine that reads its events.
	// It is not called because a context ended. The error wraps [pleg.ErrNoDaemon] unless the
	// daemon itself answered with an error.
	Disconnected func(err error, retryIn time.Duration)
}

var _ node.Pipeline = (*Client)(nil)

// Client talks to one server. Its methods are safe for concurrent use. Each watch uses
// its own connection; all other calls share one connection.
type Client struct {
	options  Options
	calls    *link
	requests requests
}

// New returns a client of the server on a unix socket. It does not connect yet: the
// error names the bad option.
func New(socket string, o Options) (*Client, error) {
	if err := o.complete(socket); err != nil {
		return nil, fmt.Errorf("new client: %w", option.Invalid(err))
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

// Close closes the shared connection, ends its calls and drops the requests that wait. A watch ends
// with its own context.
func (c *Client) Close() error { return c.calls.Close() }

// Pods returns the state of the pods with these UIDs, or of all pods if there are none,
// sorted by UID, as soon as the daemon has answered. A pod that is unknown or gone is left out. An
// error in an entry is a [*pleg.InspectionError], which wraps [cache.ErrNotInspected] if no
// inspection of the pod has ended yet. The error of Pods wraps [pleg.ErrNotSynced] until the daemon
// has committed its first list of all pods, and [pleg.ErrNoDaemon] if the daemon is away.
//
// The pods contain the changes of every event up to the position. A watch with After that position
// gets all later events and no replay. If the daemon is too old for positions, the returned
// position names no epoch of its own: that watch begins with a Gap and a replay.
func (c *Client) Pods(ctx context.Context, uids ...pleg.PodUID) ([]cache.Entry, pleg.Position, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	position := pleg.Position{Epoch: unknownEpoch}
	request := &plegv1.ListPodsRequest{Position: true}
	for _, uid := range uids {
		request.PodUids = append(request.PodUids, string(uid))
	}
	stream, err := c.calls.pleg.ListPods(ctx, request)
	if err != nil {
		return nil, pleg.Position{}, c.calls.callError("list pods", err)
	}
	var pods []cache.Entry
	for size := 0; ; {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return pods, position, nil
		}
		if err != nil {
			return nil, pleg.Position{}, c.calls.callError("list pods", err)
		}
		if at := m.GetPosition(); at != nil && m.GetPod() == nil {
			position = pleg.Position{Epoch: at.GetEpoch(), Seq: at.GetSeq()}
			continue
		}
		size += proto.Size(m)
		if size > limits.bytes || len(pods) == limits.pods {
			return nil, pleg.Position{}, fmt.Errorf("list pods: the server sent more than %d pods or %d bytes", limits.pods, limits.bytes)
		}
		pods = append(pods, newEntry(m.GetPod()))
	}
}

// unknownEpoch is not the epoch of any pipeline.
const unknownEpoch = "unknown"

func newEntry(m *plegv1.Pod) cache.Entry {
	p := cache.Entry{
		UID:         pleg.PodUID(m.GetUid()),
		Status:      wire.ToStatus(m.GetStatus()),
		Err:         inspectionError(m.GetError()),
		CurrentAsOf: wire.ToTime(m.GetCurrentAsOf()),
		LastAsOf:    wire.ToTime(m.GetLastAsOf()),
		Listed:      wire.ToPod(m.GetListed()),
	}
	if p.Last = p.Status; p.Last == nil {
		p.Last = wire.ToStatus(m.GetLastStatus())
	}
	return p
}

// Status returns the present work of the pipeline, and the causes of its waits. The errors in it
// contain only their texts.
func (c *Client) Status(ctx context.Context) (pleg.Status, error) {
	m, err := c.calls.pleg.GetStatus(ctx, &plegv1.GetStatusRequest{})
	if err != nil {
		return pleg.Status{}, c.calls.callError("status of the pipeline", err)
	}
	s := wire.ToPipelineStatus(m.GetStatus())
	s.Version = m.GetVersion()
	return s, nil
}

// healthWithin is how long Healthy waits for the daemon.
const healthWithin = 5 * time.Second

// Healthy asks the daemon whether its pipeline works, and if not, why. It blocks for at most five
// seconds. A daemon that is away is not healthy: the error wraps [pleg.ErrNoDaemon].
func (c *Client) Healthy() (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), healthWithin)
	defer cancel()
	s, err := c.Status(ctx)
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: it has not answered within %v", pleg.ErrNoDaemon, healthWithin)
	}
	if err != nil {
		return false, err
	}
	return s.Healthy, s.Err
}

// PodStatus returns the status of a pod. Unless newerThan is zero, it blocks until an
// observation that began after newerThan has been applied, or ctx ends. If the last
// inspection of the pod failed, the error wraps a [pleg.InspectionError]; for a pod that is
// unknown or gone it wraps [pleg.ErrUnknownPod], before the daemon has committed its first
// list [pleg.ErrNotSynced], and [pleg.ErrNoDaemon] if the daemon is away. If the daemon refuses the
// call because it has too many, the client repeats the call for some minutes.
func (c *Client) PodStatus(ctx context.Context, uid pleg.PodUID, newerThan time.Time) (*pleg.PodStatus, error) {
	return c.podStatus(ctx, &plegv1.GetPodStatusRequest{PodUid: string(uid), NewerThan: wire.FromTime(newerThan)})
}

// RelistPod asks the daemon to list the pod, and returns the result of [Client.PodStatus] for the
// present time: it blocks until the pod is listed, and inspected if it changed, or ctx ends. The
// daemon begins at most 10 such lists a second, for all clients together; if there are more, the
// call waits longer.
func (c *Client) RelistPod(ctx context.Context, uid pleg.PodUID) (*pleg.PodStatus, error) {
	return c.podStatus(ctx, &plegv1.GetPodStatusRequest{PodUid: string(uid), Relist: true})
}

func (c *Client) podStatus(ctx context.Context, r *plegv1.GetPodStatusRequest) (*pleg.PodStatus, error) {
	m, err := c.calls.pleg.GetPodStatus(ctx, r)
	if err != nil {
		return nil, c.calls.callError("status of pod "+r.GetPodUid(), err)
	}
	if err := inspectionError(m.GetError()); err != nil {
		return nil, fmt.Errorf("status of pod %s: %w", r.GetPodUid(), err)
	}
	return wire.ToStatus(m.GetStatus()), nil
}

// WaitSynced waits until the daemon has committed its first list of all pods, also for a daemon
// that is away. It returns the cause of ctx if that ends first, and otherwise an error only if
// no attempt can succeed, for example because the socket belongs to another user.
func (c *Client) WaitSynced(ctx context.Context) error {
	// A watch of a pod that does not exist is synced by the first list.
	none := pleg.SubscribeOptions{Replay: true, Filter: pleg.Filter{PodUIDs: []pleg.PodUID{"-"}}}
	for ev, err := range c.Watch(ctx, none) {
		if err != nil {
			return fmt.Errorf("wait for the first list: %w", err)
		}
		if ev.Type == pleg.Synced {
			return nil
		}
	}
	return context.Cause(ctx)
}

func inspectionError(text string) error {
	if text == "" {
		return nil
	}
	if text == cache.ErrNotInspected.Error() {
		return &pleg.InspectionError{Err: cache.ErrNotInspected}
	}
	return &pleg.InspectionError{Err: errors.New(text)}
}

// limits bound the list of pods that a broken server can send. Only tests change them.
var limits = struct{ pods, bytes int }{100_000, 256 << 20}
