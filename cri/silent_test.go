package cri_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestSilentRuntimeHangs has a runtime that is stopped by a signal before the first connection: its
// kernel accepts it, and nothing answers. It does not count as gone before it is: then a list
// does not wait any longer.
func TestSilentRuntimeHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	kit.Must(t, err)
	c, err := cri.New(socket, cri.Options{ConnectTimeout: 50 * time.Millisecond, ListTimeout: time.Hour})
	kit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	if _, err := c.ListPods(ctx); err == nil || errors.Is(err, pleg.ErrUnavailable) || ctx.Err() == nil {
		t.Errorf("after %v: %v, want an error of a runtime that hangs, once the context has ended", time.Since(began), err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end := time.AfterFunc(500*time.Millisecond, func() { _ = listener.Close() })
	defer end.Stop()
	for !errors.Is(err, pleg.ErrUnavailable) { // grpc may return the last error once more
		if _, err = c.ListPods(ctx); ctx.Err() != nil {
			t.Fatalf("without a listener: %v", err)
		}
	}
}
