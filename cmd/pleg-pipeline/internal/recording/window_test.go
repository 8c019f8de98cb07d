package recording_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestWindowHasTheLastMinutes replays what a window has after twelve minutes: a pipeline on it must
// have the same cache in the end, although it sees only the last minutes.
func TestWindowHasTheLastMinutes(t *testing.T) {
	long := churnSeed(3, 0.25, 180)
	polling := pipeline.Options{RelistPeriod: 4 * time.Second}
	for name, test := range map[string]struct {
		scenario
		least, most time.Duration
	}{
		"lists": {scenario{pods: 15, play: long, options: polling}, 6 * time.Minute, 9 * time.Minute},
		"a container that hangs": {scenario{pods: 5, play: func(t *testing.T, runtime *simruntime.Runtime) {
			churnSeed(3, 0.25, 125)(t, runtime)
			churnUntilHung("ContainerStatus")(t, runtime)
		}, options: polling}, 6 * time.Minute, 9 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test.simulated, test.window = simruntime.Options{Seed: 5, Profile: simruntime.NodeProfile()}, true
				want, data := test.record(t)
				r, err := recording.Read(t.Context(), bytes.NewReader(data))
				kit.Must(t, err)
				if r.Length < test.least || r.Length > test.most || r.Cut != "" || r.Runtime == nil {
					t.Errorf("it has %v of %v (%s), want %v to %v", r.Length, r.Runtime, r.Cut, test.least, test.most)
				}
				got := replayed(t, data, 1, test.options, 0)
				forgetErrors(want, got)
				want.events, got.events = nil, nil // it saw only the last of them
				got.requireEqual(t, want)
			})
		})
	}
}
