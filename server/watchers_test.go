package server_test

import (
	"context"
	"testing"
	"testing/synctest"

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
