package lister_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
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
		rt.SetList([]*pleg.Pod{nil, {}})
		f := newFixture(t, rt)
		f.next(t)
		f.next(t)
		time.Sleep(period + 3*time.Second)
		// A bubble starts at 2000-01-01 00:00:00 UTC. The third list began 2.2 s
		// later, the fourth has been running for 3 s.
		const want = `
# HELP pleg_last_seen_seconds Unix time at which the last successful relist began.
# TYPE pleg_last_seen_seconds gauge
pleg_last_seen_seconds 9.466848022e+08
# HELP pleg_relist_errors_total Relists that the runtime did not answer.
# TYPE pleg_relist_errors_total counter
pleg_relist_errors_total 1
# HELP pleg_relist_running_seconds Age in seconds of the list in progress, 0 between two lists.
# TYPE pleg_relist_running_seconds gauge
pleg_relist_running_seconds 3
`
		if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(want),
			"pleg_last_seen_seconds", "pleg_relist_errors_total", "pleg_relist_running_seconds"); err != nil {
			t.Error(err)
		}
		// Two successful lists and a failed one; one interval for each list after the first.
		for _, name := range []string{"pleg_relist_duration_seconds", "pleg_relist_interval_seconds"} {
			if got := sampleCount(t, f.metrics, name); got != 3 {
				t.Errorf("%s has %d observations, want 3", name, got)
			}
		}
	})
}

func sampleCount(t *testing.T, reg prometheus.Gatherer, name string) uint64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
