package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The number of watchers is bounded; a watcher that leaves makes room.
func TestTooManyWatchers(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{MaxWatchers: 3, MaxStreams: 100}, func(t *testing.T, f *fixture) {
		c := f.client()
		ctx, cancel := context.WithCancel(t.Context())
		f.mustWatch(ctx, c, &plegv1.WatchRequest{})
		for range 2 {
			f.mustWatch(t.Context(), c, &plegv1.WatchRequest{})
		}
		for range 50 {
			_, err := f.watch(t.Context(), c, &plegv1.WatchRequest{})
			wantStatus(t, "one more", err, codes.ResourceExhausted, "too many watchers: this server allows 3 at a time")
		}
		if n := kit.Metric(t, f.Metrics, "pleg_server_refused_total"); n != 50 {
			t.Errorf("%v refusals in the metrics, want 50", n)
		}
		cancel()
		synctest.Wait()
		f.mustWatch(t.Context(), c, &plegv1.WatchRequest{})
		for _, name := range []string{"pleg_subscribers", "pleg_server_watchers"} {
			if n := kit.Metric(t, f.Metrics, name); n != 3 {
				t.Errorf("%s is %v, want 3", name, n)
			}
		}
	})
}

// One client has all places for watchers. Another one gets as many as the first keeps.
func TestGreedyClientGivesPlacesUp(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{MaxWatchers: 4}, func(t *testing.T, f *fixture) {
		greedy, other := f.client(), f.client()
		var streams []grpc.ServerStreamingClient[plegv1.WatchResponse]
		for range 4 {
			streams = append(streams, f.mustWatch(t.Context(), greedy, &plegv1.WatchRequest{}))
		}
		for n := 3; n >= 2; n-- {
			watching := f.mustWatch(t.Context(), other, &plegv1.WatchRequest{})
			_, err := streams[n].Recv()
			wantStatus(t, "the newest watcher of the greedy client", err, codes.ResourceExhausted, "a client with fewer needs the place of this one")
			streams[n] = watching
		}
		if n := kit.Metric(t, f.Metrics, "pleg_server_refused_total"); n != 2 {
			t.Errorf("%v refusals in the metrics, want those of the watchers that were ended", n)
		}
		for _, c := range []plegv1.PLEGClient{greedy, other} {
			_, err := f.watch(t.Context(), c, &plegv1.WatchRequest{})
			wantStatus(t, "one more", err, codes.ResourceExhausted, "too many watchers: this server allows 4 at a time")
		}
		f.wantEvent("a watcher", streams...)
	})
}

// A watcher whose client does not read cannot be told that it has lost its place.
func TestGreedyClientThatDoesNotRead(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{MaxWatchers: 4}, func(t *testing.T, f *fixture) {
		f.setLargePods(4)
		all := unread{method: plegv1.PLEG_Watch_FullMethodName, request: &plegv1.WatchRequest{Replay: true}}
		ended := f.leave(all, all, all, all)
		began := time.Now()
		f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		if took := time.Since(began); took != time.Second {
			t.Errorf("the other client waited for %v, want 1 s", took)
		}
		select {
		case <-ended:
		case <-time.After(time.Millisecond):
			t.Error("the greedy client has its connection")
		}
	})
}
