package client_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// However often connections break and the server restarts, the state that each watch
// rebuilds equals the cache in the end.
func TestWatchSurvivesRestarts(t *testing.T) {
	gaps, repairs := 0, 0
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, pipeline.Options{History: 1000})
				states := f.watchRandomly(seed)
				for i, s := range states {
					for _, line := range s.Diff(kit.CachedTruth(f.pipe.Cache().List())) {
						t.Errorf("watch %d: %s", i, line)
					}
					gaps += s.Gaps
					repairs += s.Repairs
				}
			})
		})
	}
	if gaps == 0 || repairs == 0 {
		t.Errorf("%d gaps and %d repairs, want some of both", gaps, repairs)
	}
}

func (f *fixture) watchRandomly(seed uint64) []*kit.NodeState {
	rng := rand.New(rand.NewPCG(seed, 3))
	var states []*kit.NodeState
	for i := range 6 {
		state := &kit.NodeState{Look: f.pipe.Cache().Get}
		states = append(states, state)
		slowness, own := time.Duration(i%3)*15*time.Millisecond, rand.New(rand.NewPCG(seed, uint64(i)))
		f.watch(client.WatchOptions{Replay: true, Buffer: 20}, func(ev pleg.Event) {
			state.Add(ev)
			if slowness > 0 {
				time.Sleep(time.Duration(own.Int64N(int64(slowness))))
			}
		})
	}
	for round := range 40 {
		for range 40 {
			f.runtime.Set(pleg.PodUID(fmt.Sprintf("p%d", rng.IntN(50))), randomWords(rng, round))
		}
		switch rng.IntN(8) {
		case 0, 1:
			f.breakConnections()
		case 2:
			f.endServer()
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			f.startServer()
		}
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
	}
	kit.Relist(5 * 60)
	return states
}

func randomWords(rng *rand.Rand, round int) (words string) {
	for c := range 6 {
		if rng.IntN(2) == 0 {
			words += fmt.Sprintf(" c%d-%d=%s", round/(1+c), c, []string{"running", "exited"}[rng.IntN(2)])
		}
	}
	return words
}
