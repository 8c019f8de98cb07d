package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxName is the greatest length of a watcher's name, which is in logs and metrics, in
// bytes.
const maxName = 100

// service implements pleg.v1.PLEG.
type service struct {
	plegv1.UnimplementedPLEGServer
	*Server
}

// Watch implements [plegv1.PLEGServer].
func (s *service) Watch(r *plegv1.WatchRequest, stream grpc.ServerStreamingServer[plegv1.WatchResponse]) error {
	options, err := wire.ToOptions(r)
	if len(options.Name) > maxName {
		err = fmt.Errorf("name has %d bytes, the limit is %d", len(options.Name), maxName)
	}
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	ctx := stream.Context()
	s.metrics.watchers.Inc()
	defer s.metrics.watchers.Dec()
	sub, err := s.pipe.Subscribe(options)
	if err != nil {
		return callError(ctx, err)
	}
	defer sub.Close()
	// The headers tell the client that it misses no event from now on.
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	return s.forward(ctx, sub, stream)
}

// forward sends the events of a subscription. A client that does not read blocks it, and nobody
// else.
func (s *service) forward(ctx context.Context, sub pleg.Subscription, stream grpc.ServerStreamingServer[plegv1.WatchResponse]) error {
	for {
		ev, err := sub.Next(ctx)
		if err != nil {
			return callError(ctx, err)
		}
		lag := sub.Lag()
		m := &plegv1.WatchResponse{Event: wire.FromEvent(ev), LagEvents: lag.Events}
		if lag.Age > 0 {
			m.LagAge = durationpb.New(lag.Age)
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
}

// ListPods implements [plegv1.PLEGServer].
func (s *service) ListPods(r *plegv1.ListPodsRequest, stream grpc.ServerStreamingServer[plegv1.ListPodsResponse]) error {
	uids := make([]pleg.PodUID, len(r.GetPodUids()))
	for n, uid := range r.GetPodUids() {
		uids[n] = pleg.PodUID(uid)
	}
	entries, position, err := s.pipe.Pods(stream.Context(), uids...)
	if err != nil {
		return callError(stream.Context(), err)
	}
	if r.GetPosition() {
		if err := stream.Send(&plegv1.ListPodsResponse{Position: wire.FromPosition(position)}); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := stream.Send(&plegv1.ListPodsResponse{Pod: newPod(e)}); err != nil {
			return err
		}
	}
	return nil
}

func newPod(e cache.Entry) *plegv1.Pod {
	pod := &plegv1.Pod{
		Uid:         wire.Text(string(e.UID)),
		Status:      wire.FromStatus(e.Status),
		Error:       wire.ErrorText(e.Err),
		CurrentAsOf: wire.FromTime(e.CurrentAsOf),
		LastAsOf:    wire.FromTime(e.LastAsOf),
		Listed:      wire.FromPod(e.Listed),
	}
	if e.Status == nil {
		pod.LastStatus = wire.FromStatus(e.Last)
	}
	return pod
}

// GetStatus implements [plegv1.PLEGServer].
func (s *service) GetStatus(ctx context.Context, _ *plegv1.GetStatusRequest) (*plegv1.GetStatusResponse, error) {
	now, err := s.pipe.Status(ctx)
	if err != nil {
		return nil, callError(ctx, err)
	}
	return &plegv1.GetStatusResponse{
		Status: wire.FromPipelineStatus(now), Version: wire.Text(s.options.Version), WatchFields: wire.WatchFields(),
	}, nil
}

// RequestRelist implements [plegv1.PLEGServer].
func (s *service) RequestRelist(_ context.Context, r *plegv1.RequestRelistRequest) (*plegv1.RequestRelistResponse, error) {
	uid := pleg.PodUID(r.GetPodUid())
	if uid == "" {
		return nil, status.Error(codes.InvalidArgument, "pod_uid is required")
	}
	if !s.relists.Allow() {
		return nil, s.refuseRelist()
	}
	if r.GetReinspect() {
		s.pipe.RequestReinspect(uid)
	} else {
		s.pipe.RequestRelist(uid)
	}
	return &plegv1.RequestRelistResponse{}, nil
}

func (s *service) refuseRelist() error {
	s.metrics.refusedCalls.Inc()
	return status.Errorf(codes.ResourceExhausted, "too many lists of one pod: this server begins %d a second", relistsPerSecond)
}

// GetPodStatus implements [plegv1.PLEGServer].
func (s *service) GetPodStatus(ctx context.Context, r *plegv1.GetPodStatusRequest) (*plegv1.GetPodStatusResponse, error) {
	uid := pleg.PodUID(r.GetPodUid())
	if uid == "" {
		return nil, status.Error(codes.InvalidArgument, "pod_uid is required")
	}
	if r.GetRelist() && r.GetNewerThan() != nil {
		return nil, status.Error(codes.InvalidArgument, "relist and newer_than exclude each other")
	}
	if err := r.GetNewerThan().CheckValid(); r.GetNewerThan() != nil && err != nil {
		return nil, status.Error(codes.InvalidArgument, "newer_than: "+err.Error())
	}
	var got *pleg.PodStatus
	var err error
	switch {
	case !r.GetRelist():
		got, err = s.pipe.PodStatus(ctx, uid, wire.ToTime(r.GetNewerThan()))
	case s.relists.Allow():
		got, err = s.pipe.RelistPod(ctx, uid)
	default:
		return nil, s.refuseRelist()
	}
	if err == nil {
		return &plegv1.GetPodStatusResponse{Status: wire.FromStatus(got)}, nil
	}
	if failed, ok := errors.AsType[*pleg.InspectionError](err); ok {
		return &plegv1.GetPodStatusResponse{Error: wire.ErrorText(failed)}, nil
	}
	return nil, callError(ctx, cmp.Or(errors.Unwrap(err), err)) // the client names the pod
}

// Lookup implements [plegv1.PLEGServer].
func (s *service) Lookup(ctx context.Context, r *plegv1.LookupRequest) (*plegv1.LookupResponse, error) {
	c, err := s.pipe.Lookup(ctx, wire.ToQuery(r))
	switch {
	case errors.Is(err, pleg.ErrStopped):
		return nil, callError(ctx, pleg.ErrStopped) // the client names the query
	case err != nil:
		return nil, callError(ctx, err)
	}
	return wire.FromContainer(c), nil
}

// callError returns the error of a call as a gRPC status.
func callError(ctx context.Context, err error) error {
	code := codes.Unknown
	switch {
	case errors.Is(err, pleg.ErrNotSynced):
		return wire.NotSynced()
	case errors.Is(err, lookup.ErrNoContainer), errors.Is(err, pleg.ErrUnknownPod):
		code = codes.NotFound
	case errors.Is(err, lookup.ErrNotYet):
		code = codes.FailedPrecondition
	case errors.Is(err, pleg.ErrInvalidOption):
		code = codes.InvalidArgument
	case errors.Is(err, pleg.ErrStopped):
		code = codes.Unavailable
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Error(code, err.Error())
}

// Listen listens on a unix socket that only its owner and group may use. The folder must exist.
// Closing the listener removes the socket.
//
// Listen replaces the socket of a process that has ended. If another process listens on the socket,
// something else is at the path, or permission is denied, the error says so.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	return unixsocket.Listen(ctx, path)
}
