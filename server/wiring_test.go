package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each option acts: a row limits something to two: the third is refused or waits.
func TestOptionsAct(t *testing.T) {
	var log kit.Log
	waits := func(t *testing.T, c plegv1.PLEGClient) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := c.GetPodStatus(t.Context(), &plegv1.GetPodStatusRequest{PodUid: "none", NewerThan: timestamppb.New(time.Now().Add(time.Hour))})
			ended <- err
		}()
		synctest.Wait()
		return ended
	}
	type row struct {
		options server.Options
		require func(*testing.T, *fixture)
	}
	rows := map[string]row{
		"MaxConnections": {server.Options{MaxConnections: 2}, func(t *testing.T, f *fixture) {
			for n := range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err := f.client().GetStatus(ctx, &plegv1.GetStatusRequest{})
				cancel()
				if (err == nil) != (n < 2) {
					t.Errorf("connection %d: %v", n, err)
				}
			}
		}},
		"MaxStreams": {server.Options{MaxStreams: 2}, func(t *testing.T, f *fixture) {
			c := f.client()
			f.mustWatch(t.Context(), c, &plegv1.WatchRequest{})
			second, end := context.WithCancel(t.Context())
			defer end()
			f.mustWatch(second, c, &plegv1.WatchRequest{})
			short, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			if _, err := c.GetStatus(short, &plegv1.GetStatusRequest{}); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("a third call on one connection: %v, want that it waits", err)
			}
			end()
			synctest.Wait()
			_, err := c.GetStatus(t.Context(), &plegv1.GetStatusRequest{})
			kit.Must(t, err)
		}},
		"MaxWatchers": {server.Options{MaxWatchers: 2}, func(t *testing.T, f *fixture) {
			c := f.client()
			for n := range 3 {
				if _, err := f.watch(t.Context(), c, &plegv1.WatchRequest{}); (err == nil) != (n < 2) {
					t.Errorf("watch %d: %v", n, err)
				}
			}
		}},
		"MaxCalls": {server.Options{MaxCalls: 2}, func(t *testing.T, f *fixture) {
			c := f.client()
			for n := range 3 {
				ended := waits(t, c)
				if refused := len(ended) > 0; refused != (n == 2) {
					t.Errorf("call %d is refused: %v", n, refused)
				}
			}
		}},
		"Keepalive": {server.Options{Keepalive: 30 * time.Second}, func(t *testing.T, f *fixture) {
			dead, err := f.dial(t.Context())
			kit.Must(t, err)
			defer dead.Close()
			_, err = dead.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
			kit.Must(t, err)
			kit.Relist(58)
			kit.RequireMetric(t, f.Metrics, 1, "pleg_server_connections")
			kit.Relist(4) // twice the time
			kit.RequireMetric(t, f.Metrics, 0, "pleg_server_connections")
		}},
		"Logger": {server.Options{Logger: log.Logger()}, func(t *testing.T, f *fixture) {
			log.RequireLines(t, 1, `level=INFO msg="server started" part=server address=bufconn`)
			kit.Must(t, f.stopServer())
			log.RequireLines(t, 1, `level=INFO msg="server stopped" part=server address=bufconn`)
		}},
		"Version": {server.Options{Version: "v7"}, func(t *testing.T, f *fixture) {
			s, err := f.client().GetStatus(t.Context(), &plegv1.GetStatusRequest{})
			if err != nil || s.GetVersion() != "v7" || !slices.Contains(s.GetWatchFields(), "replay") || !slices.Contains(s.GetWatchFields(), "network_events") {
				t.Errorf("the status has the version %q and the fields %q, %v", s.GetVersion(), s.GetWatchFields(), err)
			}
		}},
		"Registerer": {server.Options{}, func(t *testing.T, f *fixture) { // the fixture uses one
			f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
			err := testutil.GatherAndCompare(f.Metrics, strings.NewReader(`# HELP pleg_server_connections Current connections to the gRPC service.
# TYPE pleg_server_connections gauge
pleg_server_connections 1
# HELP pleg_server_refused_total Connections, watchers and other calls refused because there were too many.
# TYPE pleg_server_refused_total counter
pleg_server_refused_total{what="call"} 0
pleg_server_refused_total{what="connection"} 0
pleg_server_refused_total{what="watcher"} 0
# HELP pleg_server_watchers Current Watch calls.
# TYPE pleg_server_watchers gauge
pleg_server_watchers 1
`), "pleg_server_connections", "pleg_server_refused_total", "pleg_server_watchers")
			kit.Must(t, err)
		}},
	}
	kit.RequireRows(t, server.Options{}, rows)
	for name, row := range rows {
		kit.Bubble(t, name, func(t *testing.T) { row.require(t, newFixture(t, pipeline.Options{}, row.options)) })
	}
}
