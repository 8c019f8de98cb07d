package lister_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each list takes a period and fails, then the next one waits for a period.
func TestStatusOfFailedLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, faultyRuntime(func(context.Context) error { time.Sleep(period); return errList }), period)
		for n, failures := range []int{0, 1, 1, 2} {
			f.sleepUntil(time.Duration(n)*period + period/2)
			s := f.lister.Status()
			if runs := !s.Started.IsZero(); runs != (n%2 == 0) || s.Failures != failures || n > 0 && !s.Failing.Equal(f.start) {
				t.Errorf("after %d.5 s: %+v, want %d failures since the start", n, s, failures)
			}
		}
	})
}

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
		// A bubble starts at 2000-01-01 00:00:00 UTC. The third list began 2.2 s later, the fourth
		// has been running for 3 s; each list after the first has an interval.
		for name, want := range map[string]float64{
			"pleg_last_seen_seconds": 946684802.2, "pleg_relist_errors_total": 1, "pleg_relist_running_seconds": 3,
			"pleg_relist_duration_seconds": 3, "pleg_relist_interval_seconds": 3,
		} {
			kit.RequireMetric(t, f.metrics, want, name)
		}
	})
}
