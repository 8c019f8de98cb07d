package surroundings_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/kubelet/internal/surroundings"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A runtime that hangs costs a call of the benchmarks the timeout that was asked for.
func TestCallsEndAtTheTimeout(t *testing.T) {
	rt := simruntime.New(simruntime.Options{})
	rt.Inject(simruntime.Fault{RPC: "ListPodSandbox", Hang: true})
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	kit.Must(t, err)
	kit.Run(t, func(ctx context.Context) error { return rt.Serve(ctx, listener) })
	runtime, err := surroundings.Manager(t.Context(), surroundings.Client(socket, 200*time.Millisecond), t.TempDir())
	kit.Must(t, err)
	if _, err := runtime.GetPods(t.Context(), true); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("GetPods = %v, want that the deadline is exceeded", err)
	}
}
