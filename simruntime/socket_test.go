package simruntime_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestIdleConnectionDoesNotDelayStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Log
		rt := simruntime.New(simruntime.Options{Logger: log.Logger()})
		dial, stop := kit.Serve(t, rt.Serve)
		conn, err := dial(t.Context())
		kit.Must(t, err)
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
		log.RequireLines(t, 1, `level=INFO msg="simulated runtime serves" address=bufconn`)
		log.RequireLines(t, 1, `level=INFO msg="simulated runtime stopped" address=bufconn`)
	})
}

// A server that stops waits until its calls have ended.
func TestStopWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simruntime.New(simruntime.Options{Faults: []simruntime.Fault{{RPC: "Version", Hang: true}}})
		dial, stop := kit.Serve(t, rt.Serve)
		client := cri.NewRuntimeServiceClient(kit.Connect(t, dial))
		for range 90 {
			go func() { _, _ = client.Version(t.Context(), &cri.VersionRequest{}) }()
		}
		synctest.Wait()
		before := rt.Stats().InFlight
		_ = stop() // Run reports the error
		if after := rt.Stats().InFlight; before != 90 || after != 0 {
			t.Errorf("%d calls execute before and %d after the stop, want 90 and 0", before, after)
		}
	})
}

// If its listener fails, Serve returns why, and serves no connection any more.
func TestServeEndsWithItsListener(t *testing.T) {
	var others kit.Log
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(others.Logger())
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 10)
		client := cri.NewRuntimeServiceClient(kit.Connect(t, l.DialContext))
		served := make(chan error, 1)
		go func() { served <- simruntime.New(simruntime.Options{}).Serve(t.Context(), l) }()
		for n, want := range []codes.Code{codes.OK, codes.Unavailable} {
			if _, err := client.Version(t.Context(), &cri.VersionRequest{}); status.Code(err) != want {
				t.Errorf("call %d ended with %v, want %v", n, err, want)
			}
			_ = l.Close()
			synctest.Wait()
		}
		if err := <-served; errors.Unwrap(err) == nil || err.Error() != "serve the simulated CRI: closed" {
			t.Errorf("Serve = %v, want the error of the listener", err)
		}
		errStop := errors.New("stop")
		ctx, stop := context.WithCancelCause(t.Context())
		stop(errStop)
		if err := simruntime.New(simruntime.Options{}).Serve(ctx, bufconn.Listen(1)); !errors.Is(err, errStop) {
			t.Errorf("Serve = %v, want the cause of its context", err)
		}
		if err := simruntime.New(simruntime.Options{}).ListenAndServe(t.Context(), ""); errors.Unwrap(err) == nil || err.Error() != "simulated runtime: listen on : the path of the socket is empty" {
			t.Errorf("ListenAndServe = %v, want that it cannot listen", err)
		}
		others.RequireLines(t, 0, "") // without a logger, nothing is logged
	})
}
