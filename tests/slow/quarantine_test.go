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

// On an idle node, too, where nothing shows that retries hang, no quarantined pod waits
// longer than MaxQuarantine and the list before its next try. (With 100 of 110, which take all
// places before one is overtaken, it is two or three minutes more.)
func TestQuarantinedPodsAreTriedInTime(t *testing.T) {
	for _, hung := range []int{1, 5, 16, 40} {
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
				most := pipeline.DefaultMaxQuarantine + 10*time.Second
				if longest > most || longest == 0 {
					t.Errorf("a pod waited for %v, want at most %v", longest, most)
				}
			})
		})
	}
}
