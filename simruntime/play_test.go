package simruntime_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// TestPlayWaitsForFirstCall and has faults without From hold for it.
func TestPlayWaitsForFirstCall(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		id := populate(t, rt, 1, 1)[0].Containers[0].ID
		done := make(chan error)
		go func() {
			done <- rt.Play(t.Context(),
				simruntime.Fault{RPC: "ContainerStatus", Code: codes.Internal, Times: 1, Until: time.Second},
				simruntime.Fault{RPC: "ContainerStatus", Code: codes.Unknown, From: 2 * time.Second, Until: 3 * time.Second},
			)
		}()
		time.Sleep(time.Hour)
		for _, want := range []codes.Code{codes.Internal, codes.OK, codes.Unknown, codes.OK} {
			if got, _ := statusOf(t.Context(), client, id); got != want {
				t.Errorf("%v, want %v", got, want)
			}
			time.Sleep(1050 * time.Millisecond)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
