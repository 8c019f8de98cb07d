package simruntime_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// overBufconn serves on an in-memory listener, for synctest bubbles.
func overBufconn(t *testing.T, rt *simruntime.Runtime) cri.RuntimeServiceClient {
	t.Helper()
	dial, _ := kit.Serve(t, rt.Serve)
	return cri.NewRuntimeServiceClient(kit.Connect(t, dial))
}

// simulate runs a test with a runtime and a client of it in a synctest bubble.
func simulate(
	t *testing.T, opts simruntime.Options, test func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt := simruntime.New(opts)
		test(t, rt, overBufconn(t, rt))
	})
}
