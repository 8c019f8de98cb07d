package inspector

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// While the process is stopped, time passes and no ticks come: events that the runtime sent
// meanwhile are still read.
func TestEndWaitsForTicks(t *testing.T) {
	for name, tc := range map[string]struct {
		ticks int
		given bool // up
	}{
		"stopped":       {1, false},
		"almost":        {sayTicks - 1, false},
		"no event came": {sayTicks, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := podcache.New()
				cache.AnnounceRemoved(true)
				i, tick, done := &Inspector{opts: Options{Cache: cache}}, make(chan time.Time), make(chan struct{})
				go func() {
					defer close(done)
					i.awaitEnds(t.Context(), []pleg.ContainerID{"c"}, tick)
				}()
				for range tc.ticks {
					tick <- time.Now()
				}
				time.Sleep(10 * sayWait)
				synctest.Wait()
				select {
				case <-done:
					if !tc.given {
						t.Error("the wait is over")
					}
				default:
					if tc.given {
						t.Error("the wait is not over")
					}
				}
				cache.KeepRemoved(&pleg.ContainerStatus{ID: "c"})
				<-done
			})
		})
	}
}

// No state of a pod that is gone is kept.
func TestNothingIsKeptOfAGonePod(t *testing.T) {
	i := &Inspector{
		opts: Options{Cache: podcache.New()}, good: map[pleg.PodUID]*pleg.PodStatus{"p": {}},
		failing: map[pleg.PodUID]bool{"p": true}, contradicted: map[pleg.PodUID]contradicted{"p": {}},
	}
	i.remove(t.Context(), stage.Change{UID: "p"}, make(chan stage.Outcome, 1), make(chan stage.Settled, 1))
	if len(i.good)+len(i.failing)+len(i.contradicted) > 0 {
		t.Errorf("kept: %v, %v, %v", i.good, i.failing, i.contradicted)
	}
}
