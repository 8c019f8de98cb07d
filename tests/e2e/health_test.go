//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
)

// An instance may become unhealthy this much sooner or later than it should,
// because lists take time and the machine may be busy.
const (
	early = 2 * time.Second
	late  = 10 * time.Second
)

// health is what the health of an instance should be, and was.
type health struct {
	// The instance must be unhealthy once its last list is older than threshold;
	// period is the time between two lists. Both are zero if this is not checked.
	threshold, period time.Duration

	mu  sync.Mutex
	bad []time.Time // when it became unhealthy
}

// expectedHealth returns the health that settings ask for.
func expectedHealth(s load.Settings) *health {
	duration := func(name string) time.Duration {
		d, _ := time.ParseDuration(s[name]) // zero if it is not set
		return d
	}
	h := &health{threshold: duration("relist-threshold"), period: duration("relist-period")}
	if s["events"] == "auto" {
		h.period = duration("relist-period-with-events")
	}
	return h
}

// watchHealth records the health of an instance until the test ends.
func (f *fixture) watchHealth(ctx context.Context, in *instance) {
	f.background(ctx, func(ctx context.Context) {
		for was := true; load.Sleep(ctx, 10*time.Millisecond); {
			status, err := in.status(ctx)
			if err != nil {
				continue
			}
			if was && !status.Healthy {
				in.health.mu.Lock()
				in.health.bad = append(in.health.bad, time.Now())
				in.health.mu.Unlock()
			}
			was = status.Healthy
		}
	})
}

// firstBad returns how long after a time the health first became bad; negative if never.
func (h *health) firstBad(after time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.IndexFunc(h.bad, after.Before); i >= 0 {
		return h.bad[i].Sub(after)
	}
	return -1
}

// checkHealth fails the test unless the instance was unhealthy if and only if no
// list succeeded for longer than its threshold, and is healthy now. It returns
// how long after the start of the fault the instance became unhealthy.
func (f *fixture) checkHealth(ctx context.Context, in *instance, listsFail bool) string {
	t, h := f.t, in.health
	t.Helper()
	lasted, unhealthy := f.faultEnded.Sub(f.faultBegan), h.firstBad(f.faultBegan)
	threshold, period := h.threshold, h.period
	switch {
	case threshold == 0:
	case listsFail && lasted > threshold+late && (unhealthy < threshold-period-early || unhealthy > threshold+late):
		t.Errorf("%s: unhealthy %v after the start of the fault, want about %v", in.name, unhealthy, threshold)
	case (!listsFail || lasted < threshold-period-early) && unhealthy >= 0:
		t.Errorf("%s: unhealthy %v after the start of the fault, want never", in.name, unhealthy)
	}
	if err := in.awaitHealth(ctx, true); err != nil {
		t.Errorf("%s: not healthy again: %v", in.name, err)
	}
	if unhealthy < 0 {
		return "never"
	}
	return fmt.Sprintf("%.1f s", unhealthy.Seconds())
}
