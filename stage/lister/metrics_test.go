package lister_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		rt := faultyRuntime(func(ctx context.Context) error {
			switch calls++; calls {
			case 2:
				return errList
			case 4:
				return plegtest.Hang(ctx)
			default:
				time.Sleep(200 * time.Millisecond)
				return nil
			}
		})
		f := newFixture(t, rt, period)
		f.next(t)
		f.next(t)
		time.Sleep(period + 3*time.Second)
		// A bubble starts at 2000-01-01 00:00:00 UTC. The third list began 2.2 s later, the
		// fourth has been running for 3 s; one interval is that of each list after the first.
		for name, want := range map[string]float64{
			"pleg_last_seen_seconds": 946684802.2, "pleg_relist_errors_total": 1, "pleg_relist_running_seconds": 3,
			"pleg_relist_duration_seconds": 3, "pleg_relist_interval_seconds": 3,
		} {
			kit.RequireMetric(t, f.metrics, want, name)
		}
	})
}
