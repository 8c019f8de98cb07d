package recording_test

import (
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// eventCases are pipelines that follow CRI events.
var eventCases = map[string]struct {
	faults simruntime.EventFaults
	play   func(*testing.T, *simruntime.Runtime)
	// unannounced: a list reports changes that no event announced. Its time decides
	// which container is reported first.
	unannounced bool
}{
	"all events":        {play: churn(20, 100)},
	"repeated events":   {faults: simruntime.EventFaults{Duplicate: 0.3}, play: churn(20, 100)},
	"unannounced":       {unannounced: true, faults: simruntime.EventFaults{Loss: 0.2}, play: churnUntilList},
	"streams that fail": {play: churnWithBreaks},
}

func churnUntilList(t *testing.T, runtime *simruntime.Runtime) {
	churn(5, 80)(t, runtime)
	time.Sleep(11 * time.Second) // until a list has shown the rest
}

func churnWithBreaks(t *testing.T, runtime *simruntime.Runtime) {
	for seed := range uint64(4) {
		churnSeed(seed, 20, 25)(t, runtime)
		// The stream is opened again at a random time. A list before that shows
		// changes in an order of its own, so nothing may change then.
		runtime.BreakEvents()
		time.Sleep(3 * time.Second)
	}
}

func TestReplayOfEvents(t *testing.T) {
	following := pipeline.Options{Events: pipeline.EventsRequire, RelistPeriodWithEvents: 10 * time.Second}
	for name, test := range eventCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := scenario{pods: 15, options: following, simulated: simruntime.Options{Seed: 5, Profile: nodeProfile(t)}}
				s.play = func(t *testing.T, runtime *simruntime.Runtime) {
					if err := runtime.SetEventFaults(test.faults); err != nil {
						t.Fatal(err)
					}
					test.play(t, runtime)
				}
				want, data := s.record(t)
				want.requireMany(t)
				got := replayed(t, data, 1, following, false)
				if test.unannounced {
					want, got = want.byContainer(), got.byContainer()
				}
				got.requireEqual(t, want)
			})
		})
	}
}

// TestReplayOfEventsForPollingPipeline replays a recording with few lists: lists
// show what the events announced.
func TestReplayOfEventsForPollingPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := scenario{
			pods: 15, options: pipeline.Options{Events: pipeline.EventsRequire}, simulated: simruntime.Options{Seed: 5, Profile: nodeProfile(t)},
			play: churnSeed(3, 5, 100),
		}
		want, data := s.record(t)
		got := replayed(t, data, 1, pipeline.Options{}, false)
		want.events, got.events = nil, nil // lists show fewer changes
		got.requireEqual(t, want)
	})
}

func TestReplayWithoutEventsForFollowingPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := scenario{pods: 5, simulated: simruntime.Options{Seed: 5}, play: churn(8, 50)}
		want, data := s.record(t)
		replayed(t, data, 1, pipeline.Options{Events: pipeline.EventsAuto}, false).requireEqual(t, want)
	})
}
