// Package hostile contains a daemon that sends answers that a correct daemon never sends, for tests
// of its clients.
package hostile

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// WatchStream is the stream of Watch.
type WatchStream = grpc.ServerStreamingServer[plegv1.WatchResponse]

// ListStream is the stream of ListPods.
type ListStream = grpc.ServerStreamingServer[plegv1.ListPodsResponse]

// Daemon answers calls by its functions. If a function is nil, it answers like a daemon without
// pods.
type Daemon struct {
	plegv1.UnimplementedPLEGServer
	OnWatch  func(*plegv1.WatchRequest, WatchStream) error
	OnList   func(ListStream) error
	OnStatus func(context.Context) (*plegv1.GetStatusResponse, error)
	OnLookup func(context.Context) (*plegv1.LookupResponse, error)
	OnRelist func(*plegv1.RequestRelistRequest)
}

// Watch implements [plegv1.PLEGServer].
func (d *Daemon) Watch(r *plegv1.WatchRequest, stream WatchStream) error {
	if d.OnWatch != nil {
		return d.OnWatch(r, stream)
	}
	return Events(&plegv1.Event{Epoch: "e", Seq: 1, Type: plegv1.EventType_EVENT_TYPE_SYNCED})(r, stream)
}

// Events sends events and then nothing more.
func Events(events ...*plegv1.Event) func(*plegv1.WatchRequest, WatchStream) error {
	return func(_ *plegv1.WatchRequest, stream WatchStream) error {
		for _, event := range events {
			if err := stream.Send(&plegv1.WatchResponse{Event: event}); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return nil
	}
}

// ListPods implements [plegv1.PLEGServer].
func (d *Daemon) ListPods(_ *plegv1.ListPodsRequest, stream ListStream) error {
	if d.OnList != nil {
		return d.OnList(stream)
	}
	return nil
}

// GetStatus implements [plegv1.PLEGServer].
func (d *Daemon) GetStatus(ctx context.Context, _ *plegv1.GetStatusRequest) (*plegv1.GetStatusResponse, error) {
	if d.OnStatus != nil {
		return d.OnStatus(ctx)
	}
	return &plegv1.GetStatusResponse{Status: &plegv1.PipelineStatus{Healthy: true}}, nil
}

// Lookup implements [plegv1.PLEGServer].
func (d *Daemon) Lookup(ctx context.Context, _ *plegv1.LookupRequest) (*plegv1.LookupResponse, error) {
	if d.OnLookup != nil {
		return d.OnLookup(ctx)
	}
	return &plegv1.LookupResponse{}, nil
}

// RequestRelist implements [plegv1.PLEGServer].
func (d *Daemon) RequestRelist(_ context.Context, r *plegv1.RequestRelistRequest) (*plegv1.RequestRelistResponse, error) {
	if d.OnRelist != nil {
		d.OnRelist(r)
	}
	return &plegv1.RequestRelistResponse{}, nil
}

// Serve serves a daemon in memory until the test ends and returns how to dial it. If it is nil, the
// server serves another service.
func Serve(t testing.TB, d *Daemon) func(context.Context) (net.Conn, error) {
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.MaxSendMsgSize(1<<30),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second}))
	if d != nil {
		plegv1.RegisterPLEGServer(server, d)
	}
	dial, _ := kit.Serve(t, kit.GRPC(server))
	return dial
}
