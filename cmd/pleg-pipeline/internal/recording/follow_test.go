package recording_test

import (
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// TestReplayOfEvents records a pipeline that follows the runtime's events.
func TestReplayOfEvents(t *testing.T) {
	following := pipeline.Options{Events: pipeline.EventsRequire, RelistPeriodWithEvents: 10 * time.Second}
	for name, test := range map[string]struct {
		faults simruntime.EventFaults
		play   func(*testing.T, *simruntime.Runtime)
		// lists is that a list tells what no event did: when one is made, in the
		// midst of a pod's start or after it, decides which container is told first.
		lists bool
	}{
		"whole": {play: churn(20, 150)},
		"twice": {faults: simruntime.EventFaults{Duplicate: 0.3}, play: churn(20, 150)},
		"lost": {lists: true, faults: simruntime.EventFaults{Loss: 0.2}, play: func(t *testing.T, runtime *simruntime.Runtime) {
			churn(5, 100)(t, runtime)
			time.Sleep(11 * time.Second) // until a list has told the rest
		}},
		"breaks": {play: func(t *testing.T, runtime *simruntime.Runtime) {
			for seed := range uint64(4) {
				churnSeed(seed, 20, 40)(t, runtime)
				// It is opened again at a random time, before which a list sees things
				// in its own order: nothing is to happen then.
				runtime.BreakEvents()
				time.Sleep(3 * time.Second)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scene{
					pods: 15, options: following, simulated: simruntime.Options{Seed: 5, Profile: node(t)},
					play: func(t *testing.T, runtime *simruntime.Runtime) {
						if err := runtime.SetEventFaults(test.faults); err != nil {
							t.Fatal(err)
						}
						test.play(t, runtime)
					},
				}
				want, data := s.record(t)
				t.Logf("%d events of %d pods, %d bytes", want.total, len(want.events), len(data))
				if want.total < 100 {
					t.Fatalf("only %d events were recorded", want.total)
				}
				got := replay(t, data, 1, following, false)
				if test.lists {
					want, got = want.byContainer(), got.byContainer()
				}
				got.same(t, want)
			})
		})
	}
}

// TestReplayOfEventsToOneThatLists replays a recording with few lists: the events
// tell what the lists are to show.
func TestReplayOfEventsToOneThatLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scene{
			pods: 15, options: pipeline.Options{Events: pipeline.EventsRequire}, simulated: simruntime.Options{Seed: 5, Profile: node(t)},
			play: churn(5, 100),
		}
		want, data := s.record(t)
		got := replay(t, data, 1, pipeline.Options{}, false)
		want.events, got.events = nil, nil // a list sees less
		got.same(t, want)
	})
}

// TestReplayWithoutEvents follows what a recording does not have.
func TestReplayWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scene{pods: 5, simulated: simruntime.Options{Seed: 5}, play: churn(8, 50)}
		want, data := s.record(t)
		replay(t, data, 1, pipeline.Options{Events: pipeline.EventsAuto}, false).same(t, want)
	})
}
