//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// An instance may become unhealthy this much sooner or later than it should,
// because lists take time and the machine may be busy.
const (
	early = 2 * time.Second
	late  = 10 * time.Second
)

// healthLog has the changes of an instance's health.
type healthLog struct {
	mu      sync.Mutex
	changes []healthChange
}

type healthChange struct {
	at time.Time
	ok bool
}

func (h *healthLog) add(ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.changes); n == 0 || h.changes[n-1].ok != ok {
		h.changes = append(h.changes, healthChange{time.Now(), ok})
	}
}

// firstUnhealthy returns how long after a time the health first changed to
// unhealthy; negative if never.
func (h *healthLog) firstUnhealthy(after time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.changes {
		if !c.ok && c.at.After(after) {
			return c.at.Sub(after)
		}
	}
	return -1
}

// watchHealth logs the health of an instance until the test ends.
func (in *instance) watchHealth(ctx context.Context, t *testing.T) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if ok, err := in.healthy(ctx); err == nil {
					in.health.add(ok)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// awaitHealthy returns once the instance reports that it is healthy.
func (in *instance) awaitHealthy(ctx context.Context) error {
	return eventually(ctx, func() bool { ok, err := in.healthy(ctx); return ok && err == nil })
}

// checkHealth fails the test unless the instance was unhealthy if and only if no
// list succeeded for longer than its threshold, and is healthy now. It returns
// how long after the start of the fault the instance became unhealthy.
func (f *fixture) checkHealth(ctx context.Context, in *instance, listsFail bool) string {
	t := f.t
	t.Helper()
	lasted, unhealthy := f.faultEnded.Sub(f.faultBegan), in.health.firstUnhealthy(f.faultBegan)
	threshold, period := in.threshold, in.period
	if f.streamBroke {
		threshold, period = in.pollingThreshold, relistPeriod
	}
	switch {
	case threshold == 0:
	case listsFail && lasted > threshold+late && (unhealthy < threshold-period-early || unhealthy > threshold+late):
		t.Errorf("%s: unhealthy %v after the start of the fault, want about %v", in.name, unhealthy, threshold)
	case (!listsFail || lasted < threshold-period-early) && unhealthy >= 0:
		t.Errorf("%s: unhealthy %v after the start of the fault, want never", in.name, unhealthy)
	}
	if err := in.awaitHealthy(ctx); err != nil {
		t.Errorf("%s: not healthy again: %v", in.name, err)
	}
	if unhealthy < 0 {
		return "never"
	}
	return fmt.Sprintf("%.1f s", unhealthy.Seconds())
}
