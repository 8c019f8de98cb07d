package recording_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestRecorderNeverBlocks makes more calls than fit into the queue before anything is written. The
// client gets all answers, and the recording fails.
func TestRecorderNeverBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, dial, stop := newRuntime(t, simruntime.Options{Seed: 1}, simruntime.Population{Pods: 1})
		recorder := recording.NewShortRecorder(new(memory), 50)
		client := connect(t, append(dial, recorder.DialOptions()...))
		for range 50 {
			_, err := client.ListPods(t.Context())
			kit.Must(t, err)
		}
		if err := recorder.Run(); err == nil || !strings.Contains(err.Error(), "as fast as") {
			t.Errorf("Run = %v, want that the output is too slow", err)
		}
		_, _ = client.Close(), stop()
	})
}
