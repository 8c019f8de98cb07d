package cri_test

import (
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// No call waits for the log handler. Close does, for a second.
func TestBlockedLogStopsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		defer close(gate)
		o := &outlet{}
		serve(t, &fakeRuntime{
			sandboxes:  []*runtimeapi.PodSandbox{sandbox("good", "good", 0, 1)},
			containers: []*runtimeapi.Container{container("bad", "gone", 0, 1)},
		}, o.listen())
		client := o.unclosed(t, cri.Options{Logger: kit.BlockedLogger(gate)})
		listed := make(chan int, 1)
		go func() {
			pods, err := client.ListPods(t.Context())
			if err != nil {
				t.Error(err)
			}
			listed <- len(pods)
		}()
		synctest.Wait()
		select {
		case n := <-listed:
			if n != 1 {
				t.Errorf("got %d pods, want 1", n)
			}
		default:
			t.Error("the list waits for the log handler")
		}
		began := time.Now()
		must(t, client.Close())
		if took := time.Since(began); took != time.Second {
			t.Errorf("Close took %v, want 1s", took)
		}
	})
}
