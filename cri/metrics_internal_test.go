package cri

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

// A call that succeeds ends what a failed call began: the threads of the runtime are looked at only while
// something is wrong. This test is inside the package, as no runtime of a test has a process of its own.
func TestOnlyTheLastCallCountsAsFailed(t *testing.T) {
	m, err := newMetrics(instrument.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	for _, fails := range []error{errors.New("refused"), nil} {
		call := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return fails }
		if err := m.intercept(t.Context(), runtimeapi.RuntimeService_Version_FullMethodName, nil, nil, nil, call); !errors.Is(err, fails) {
			t.Errorf("the call ended with %v, want %v", err, fails)
		}
		if failed := m.failed.Load(); failed != (fails != nil) {
			t.Errorf("after a call that ended with %v, the last one has failed: %t", fails, failed)
		}
	}
}
