package recording_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestReplaySpeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := scenario{pods: 5, simulated: simruntime.Options{Seed: 5, Profile: simruntime.NodeProfile()}, play: churn(2, 60)}
		want, data := s.record(t)
		for speed, period := range map[float64]time.Duration{10: 100 * time.Millisecond, 0.25: 4 * time.Second} {
			began := time.Now()
			replayed(t, data, speed, pipeline.Options{RelistPeriod: period}, 0).requireEqual(t, want)
			if took, wanted := time.Since(began), time.Duration(float64(35*time.Second)/speed); took < wanted*9/10 || took > wanted*11/10+2*time.Second {
				t.Errorf("at speed %v it takes %v, want about %v", speed, took, wanted)
			}
		}
	})
}

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
