package recording_test

import (
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func node(t *testing.T) simruntime.Profile {
	t.Helper()
	profile, err := simruntime.NewProfile(simruntime.ProfileNode)
	if err != nil {
		t.Fatal(err)
	}
	return profile
}

// TestReplayShowsTheSame records a pipeline on a runtime that changes, and
// demands the same events of each pod in the same order, and the same cache, of
// a pipeline on the recording.
func TestReplayShowsTheSame(t *testing.T) {
	for name, test := range map[string]struct {
		scene
		replay pipeline.Options
		unary  bool
		// states is that only the cache is compared: whether a call is tried again
		// before or after the next list is a matter of milliseconds, and with it
		// which changes of a pod come as one.
		states bool
	}{
		"churn":          {scene: scene{pods: 20, play: churn(8, 300)}},
		"unary lists":    {scene: scene{pods: 20, unary: true, play: churn(8, 120)}},
		"replayed unary": {scene: scene{pods: 20, play: churn(8, 120)}, unary: true},
		"storm":          {states: true, scene: scene{pods: 50, play: churn(100, 600)}},
		"other period":   {scene: scene{pods: 20, play: churn(8, 120)}, replay: pipeline.Options{RelistPeriod: 3 * time.Second}},
		"shorter period": {scene: scene{pods: 20, play: churn(8, 120)}, replay: pipeline.Options{RelistPeriod: 70 * time.Millisecond}},
		"failures":       {states: true, scene: scene{pods: 20, play: failing(simruntime.Fault{RPC: "ContainerStatus", Code: 14, Probability: 0.3})}},
		"failing lists":  {states: true, scene: scene{pods: 20, play: failing(simruntime.Fault{RPC: "StreamContainers", Code: 14, Probability: 0.3})}},
		"hanging":        {states: true, scene: scene{pods: 20, play: failing(simruntime.Fault{RPC: "ContainerStatus", Hang: true, Probability: 0.1})}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.simulated = simruntime.Options{Seed: 5, Profile: node(t)}
				want, data := test.record(t)
				t.Logf("%d events of %d pods, %d bytes", want.total, len(want.events), len(data))
				if want.total < 100 {
					t.Fatalf("only %d events were recorded", want.total)
				}
				got := replay(t, data, 1, test.replay, test.unary)
				if test.states {
					want.events, got.events = nil, nil
				}
				got.same(t, want)
			})
		})
	}
}

// failing changes the runtime while some calls fail, and then lets it recover.
func failing(f simruntime.Fault) func(*testing.T, *simruntime.Runtime) {
	return func(t *testing.T, runtime *simruntime.Runtime) {
		id, err := runtime.Inject(f)
		if err != nil {
			t.Fatal(err)
		}
		churn(8, 120)(t, runtime)
		runtime.Clear(id)
		time.Sleep(20 * time.Second)
	}
}
