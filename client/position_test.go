package client_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// scripted is a server that ends its first stream after some events, and passes on the
// requests.
type scripted struct {
	plegv1.UnimplementedPLEGServer
	events   []pleg.Event
	requests chan *plegv1.WatchRequest
}

// Watch implements [plegv1.PLEGServer].
func (s *scripted) Watch(r *plegv1.WatchRequest, stream grpc.ServerStreamingServer[plegv1.WatchResponse]) error {
	s.requests <- r
	for _, ev := range s.events {
		if err := stream.Send(&plegv1.WatchResponse{Event: wire.FromEvent(ev, "epoch")}); err != nil {
			return err
		}
	}
	s.events = nil
	return nil
}

// Wherever a watch is interrupted, the position from which it resumes skips no event.
func TestWatchResumesFromLastEvent(t *testing.T) {
	started := func(seq uint64) pleg.Event { return pleg.Event{Seq: seq, Type: pleg.ContainerStarted, PodUID: "a"} }
	replayed := func(seq uint64) pleg.Event {
		ev := started(seq)
		ev.Replayed = true
		return ev
	}
	repair := func(seq uint64) pleg.Event {
		return pleg.Event{Seq: seq, Type: pleg.PodSync, PodUID: "a", Missed: 3}
	}
	mark := func(t pleg.EventType, seq uint64) pleg.Event { return pleg.Event{Seq: seq, Type: t} }
	tests := []struct {
		name    string
		options client.WatchOptions
		events  []pleg.Event
		after   uint64 // 0: it asks for a replay
	}{
		{"an event", client.WatchOptions{Replay: true}, []pleg.Event{mark(pleg.Synced, 3), started(4)}, 4},
		{"a bookmark", client.WatchOptions{Replay: true}, []pleg.Event{mark(pleg.Synced, 3), mark(pleg.Bookmark, 7)}, 7},
		{"a repair", client.WatchOptions{Replay: true}, []pleg.Event{mark(pleg.Synced, 3), started(4), repair(9), repair(12)}, 4},
		{"what follows repairs", client.WatchOptions{Replay: true}, []pleg.Event{started(4), repair(9), started(13)}, 13},
		{"a reinspected pod", client.WatchOptions{Replay: true}, []pleg.Event{{Seq: 5, Type: pleg.PodSync, PodUID: "a"}}, 5},
		{"a gap", client.WatchOptions{After: &client.Position{Seq: 2}}, []pleg.Event{mark(pleg.Gap, 20)}, 2},
		{"a part of a replay", client.WatchOptions{Replay: true}, []pleg.Event{replayed(6)}, 6},
		{"a gap and a part of its replay", client.WatchOptions{After: &client.Position{Seq: 2}}, []pleg.Event{mark(pleg.Gap, 20), replayed(6)}, 6},
		{"nothing", client.WatchOptions{Replay: true}, nil, 0},
		{"a part of a replay not asked for", client.WatchOptions{}, []pleg.Event{replayed(6)}, 0},
		{"a replay not asked for", client.WatchOptions{}, []pleg.Event{replayed(6), mark(pleg.Synced, 8)}, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{events: tt.events, requests: make(chan *plegv1.WatchRequest)}
				requests := s.watch(t, tt.options)
				<-requests
				r := <-requests
				if tt.after == 0 {
					if !r.GetReplay() || r.GetResumeAfter() != nil {
						t.Errorf("then asked for %v, want a replay", r)
					}
					return
				}
				if r.GetReplay() || r.GetResumeAfter().GetSeq() != tt.after {
					t.Errorf("then asked for %v, want the events after %d", r, tt.after)
				}
			})
		})
	}
}

// watch serves one watch and returns its requests.
func (s *scripted) watch(t *testing.T, o client.WatchOptions) <-chan *plegv1.WatchRequest {
	t.Helper()
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	plegv1.RegisterPLEGServer(srv, s)
	listener := bufconn.Listen(64 << 10)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	c, err := client.New("", client.Options{Dial: func(ctx context.Context) (net.Conn, error) { return listener.DialContext(ctx) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for _, err := range c.Watch(ctx, o) {
			if err != nil {
				t.Error(err)
			}
		}
	}()
	requests := make(chan *plegv1.WatchRequest, 2)
	relayed := make(chan struct{})
	go func() {
		defer close(relayed)
		for r := range s.requests {
			select {
			case requests <- r:
			default:
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-watched
		c.Close()
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		close(s.requests)
		<-relayed
	})
	return requests
}
