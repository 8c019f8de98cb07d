package simruntime_test

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestRestartKeepsPods(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{})
	populate(t, rt, 3, 1)
	path := filepath.Join(t.TempDir(), "s")
	serve := func(ctx context.Context) error { return rt.ListenAndServe(ctx, path) }
	stop := kit.Run(t, serve)
	client := dial(t, "unix:"+path, grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	listPods(t, client, nil)
	stream, err := client.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	hang := inject(t, rt, simruntime.Fault{RPC: "Version", Hang: true})
	hung := make(chan error, 1)
	go func() {
		_, err := client.Version(t.Context(), &cri.VersionRequest{})
		hung <- err
	}()
	for rt.Stats().RPCs["Version"].Calls == 0 {
		listPods(t, client, nil)
	}

	_ = stop() // Run reports the error
	if err := <-hung; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Errorf("hung call ended with %v, want Unavailable or Canceled", err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Errorf("event stream ended with %v, want Unavailable or Canceled", err)
	}
	if s := rt.Stats(); s.InFlight != 0 || s.Arrived != 0 {
		t.Errorf("after the stop %d calls in flight, %d arrived", s.InFlight, s.Arrived)
	}
	rt.Clear(hang)
	rt.Burst(1, simruntime.Remove) // while no client can call

	kit.Run(t, serve)
	if got := listPods(t, client, nil); len(got) != 2 {
		t.Errorf("after the restart %d pods, want 2", len(got))
	}
}

func TestServeAfterEndOfContext(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Serve(ctx, l); err == nil {
		t.Error("Serve returned nil, want the cause of its context")
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("the listener is still open")
	}
}

func TestIdleConnectionDoesNotDelayStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newRuntime(t, simruntime.Options{})
		l := bufconn.Listen(1 << 10)
		stop := kit.Run(t, func(ctx context.Context) error { return rt.Serve(ctx, l) })
		conn, err := l.DialContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() { // reads, and sends nothing
			_, _ = io.Copy(io.Discard, conn)
		}()
		synctest.Wait()
		began := time.Now()
		_ = stop() // Run reports the error
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the stop took %v, want at most 5s", took)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
}
