//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// parts is the number of parts of the span whose CPU time is measured on its own.
const parts = 6

// churnPeriod is the time between two pods of a kubelet, which live for 5 s. A pod is
// removed removeAfter pods later. If all kubelets make more pods than two cores can start,
// their starts pile up until nothing else runs.
const (
	churnPeriod = 10 * time.Second
	removeAfter = 3
)

// TestCPU measures the CPU time of all kubelets at the same time, each with a runtime of
// its own: KUBELET_E2E_SPAN while no pod changes, and again with churn. Nobody asks the
// kubelets anything meanwhile.
func TestCPU(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	results := newResults()
	var trials []*trial
	for _, kind := range kinds {
		trials = append(trials, startTrial(ctx, t, kind, results[kind]))
	}
	pause(ctx, settleTime)
	step(ctx, "idle", func(ctx context.Context) { measureParts(ctx, t, "idle", trials, func(int) {}) })
	step(ctx, "churn", func(ctx context.Context) {
		measureParts(ctx, t, "a pod each 10 s", trials, func(n int) {
			for _, tr := range trials {
				tr.k.addPod(fmt.Sprintf("churn-%d", n), "Never", `"exit", "0", "5s"`)
				if n >= removeAfter {
					tr.k.removePod(fmt.Sprintf("churn-%d", n-removeAfter))
				}
			}
		})
	})
	t.Log("\n" + table(results))
}

// measureParts measures a span in parts, and calls tick each churnPeriod.
func measureParts(ctx context.Context, t *testing.T, what string, trials []*trial, tick func(n int)) {
	t.Helper()
	ticks := max(1, int(span(t)/parts/churnPeriod))
	before := make([]usage, len(trials))
	for n := range parts {
		for i, tr := range trials {
			before[i] = tr.usage()
		}
		began := time.Now()
		for i := range ticks {
			tick(n*ticks + i)
			pause(ctx, time.Until(began.Add(time.Duration(i+1)*churnPeriod)))
		}
		for i, tr := range trials {
			tr.share(what, before[i], time.Since(began))
		}
		if ctx.Err() != nil {
			t.Fatalf("measure %s: %v", what, context.Cause(ctx))
		}
	}
}
