package cri_test

import (
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// No call waits for the log handler. Close does, for a second.
func TestBlockedLogStopsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, start := make(chan struct{}), time.Now()
		time.AfterFunc(time.Hour, func() { close(gate) })
		t.Cleanup(func() {
			if took := time.Since(start); took != time.Second {
				t.Errorf("the list and Close took %v, want 0s and 1s", took)
			}
			<-gate
		})
		wantPods(t, connect(t, &rawruntime.Runtime{
			Sandboxes:  []*runtimeapi.PodSandbox{sandbox("good", "good", 0, 1)},
			Containers: []*runtimeapi.Container{container("bad", "gone", 0, 1)},
		}, cri.Options{Logger: kit.BlockedLogger(gate)}), 1)
	})
}
