package slow_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// On an idle node nothing shows that retries hang: each has the whole timeout, in half of
// the places. No quarantined pod waits longer than MaxQuarantine and what that takes.
func TestQuarantinedPodsAreTriedInTime(t *testing.T) {
	for _, hung := range []int{1, 16, 40} {
		t.Run(fmt.Sprint(hung), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := kit.New(t, pipeline.Options{})
				kit.Fill(p.Runtime, 110, "c=running")
				p.StartBetweenLists(t)
				p.Runtime.SetInspectFault(plegtest.Delay(20 * time.Millisecond))
				var mu sync.Mutex
				var longest time.Duration
				n := 0
				for uid := range p.Runtime.Counts().Inspections {
					if n++; n > hung {
						break
					}
					var ended time.Time
					p.Runtime.SetPodFault(uid, func(ctx context.Context) error {
						mu.Lock()
						if !ended.IsZero() {
							longest = max(longest, time.Since(ended))
						}
						mu.Unlock()
						<-ctx.Done()
						mu.Lock()
						ended = time.Now()
						mu.Unlock()
						return ctx.Err()
					})
				}
				kit.Fill(p.Runtime, 110, "c=exited")
				time.Sleep(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				turns := time.Duration(hung) * pipeline.DefaultInspectTimeout / (pipeline.DefaultInspectors / 2)
				if most := pipeline.DefaultMaxQuarantine + turns; longest > most || longest == 0 {
					t.Errorf("a pod waited for %v, want at most %v", longest, most)
				}
			})
		})
	}
}
