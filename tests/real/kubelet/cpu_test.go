//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// parts is the number of parts of a span; the CPU time of each is measured.
const parts = 6

// churnPeriod is the time between two pods of a kubelet, which live for 5 s. A pod is removed once
// removeAfter more pods have come. If all kubelets make more pods than two cores can start, their
// starts pile up until nothing else runs.
const (
	churnPeriod = 10 * time.Second
	removeAfter = 3
)

// TestCPU measures the CPU time and the memory of all kubelets at the same time, each with a runtime of
// its own: KUBELET_E2E_SPAN while no pod changes, and again with churn. Nobody asks the
// kubelets anything meanwhile.
func TestCPU(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	results := newResults(kinds)
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
	t.Log("\n" + sideBySide(results))
}

// startedContainers is the kubelet's metric of started containers, for the churn.
const startedContainers = `kubelet_started_containers_total{container_type="container"}`

// measureParts measures a span in parts, and calls tick each churnPeriod.
func measureParts(ctx context.Context, t *testing.T, what string, trials []*trial, tick func(n int)) {
	t.Helper()
	ticks := max(1, int(span(t)/parts/churnPeriod))
	before, started := make([]usage, len(trials)), make([]float64, len(trials))
	for i, tr := range trials {
		started[i] = tr.k.metric(ctx, startedContainers)
	}
	for n := range parts {
		for i, tr := range trials {
			before[i] = tr.usage()
		}
		began := time.Now()
		for i := range ticks {
			tick(n*ticks + i)
			pause(ctx, time.Until(began.Add(time.Duration(i+1)*churnPeriod)))
		}
		d := time.Since(began)
		for i, tr := range trials {
			used := tr.share(what, before[i], d)
			t.Logf("%s, part %d of %d, %s: the kubelet used %v, the runtime %v in %v", what, n+1, parts, kinds[i], used.kubelet, used.runtime, d.Round(time.Second))
		}
		if ctx.Err() != nil {
			t.Fatalf("measure %s: %v", what, context.Cause(ctx))
		}
	}
	for i, tr := range trials {
		use, err := process.UseOf(tr.k.PID())
		kit.Must(t, err)
		tr.add(what+": memory of the kubelet (MiB)", float64(use.RSS)/(1<<20))
		tr.add(what+": containers started", tr.k.metric(ctx, startedContainers)-started[i])
	}
}
