package cri_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// TestReconnectsSoonAfterRuntimeReturns lists each second during an outage. The first
// list after the return must succeed, however long the outage was.
func TestReconnectsSoonAfterRuntimeReturns(t *testing.T) {
	t.Parallel()
	for _, outage := range []time.Duration{500 * time.Millisecond, 10 * time.Second, 2 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var current atomic.Pointer[bufconn.Listener]
				dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					if listener := current.Load(); listener != nil {
						return listener.DialContext(ctx)
					}
					return nil, errors.New("connection refused")
				})
				start := func() (stop func()) {
					listener := bufconn.Listen(1 << 20)
					current.Store(listener)
					return serve(t, lists([]*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}, nil), listener)
				}
				client := newClient(t, "/in-memory", cri.Options{DialOptions: []grpc.DialOption{dial}})

				stop := start()
				if _, err := client.ListPods(t.Context()); err != nil {
					t.Fatal(err)
				}
				current.Store(nil)
				stop()
				for end := time.Now().Add(outage); time.Now().Before(end); time.Sleep(min(time.Second, time.Until(end))) {
					if _, err := client.ListPods(t.Context()); status.Code(err) != codes.Unavailable {
						t.Fatalf("list of a runtime that is gone: %v, want Unavailable", err)
					}
				}
				start()
				time.Sleep(400 * time.Millisecond)
				if _, err := client.ListPods(t.Context()); err != nil {
					t.Errorf("0.4 s after the runtime's return: %v", err)
				}
			})
		})
	}
}

func TestFindsReplacedSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	stop := serve(t, lists(nil, nil), listen(t, path))
	client := newClient(t, path, cri.Options{
		DialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.WaitForReady(true))},
	})
	if pods, err := client.ListPods(t.Context()); err != nil || len(pods) != 0 {
		t.Fatalf("got %v, %v; want an empty node", pods, err)
	}
	stop() // removes the socket
	serve(t, lists([]*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}, nil), listen(t, path))
	pods, err := client.ListPods(t.Context())
	if err != nil { // sent before the client saw the end of its connection
		pods, err = client.ListPods(t.Context())
	}
	if err != nil || len(pods) != 1 {
		t.Errorf("after a restart: %v, %v; want one pod", pods, err)
	}
}
