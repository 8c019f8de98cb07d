//go:build linux

package e2e_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// A containerd that stands still is unhealthy although lists are rare, and
// followed again when it goes on.
func TestRuntimeThatStandsStill(t *testing.T) {
	const threshold = 2 * time.Second
	calls := cri.Options{EventProbePeriod: time.Second, EventProbeTimeout: 500 * time.Millisecond}
	noticed := calls.EventProbePeriod + 2*calls.EventProbeTimeout
	ctx, l := startLab(t, lab.Pinned)
	registry := prometheus.NewPedanticRegistry()
	p, seen := runClient(ctx, t, l, calls, pipeline.Options{
		RelistThreshold: threshold, Events: pipeline.EventsAuto, RelistPeriodWithEvents: time.Hour, RelistThresholdWithEvents: 2 * time.Hour,
		Registerer: registry,
	}, false)
	follows := func() bool {
		ok, _ := p.Healthy()
		return ok && gaugeOf(t, registry, "pleg_event_stream_up") == 1
	}
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 2))
	c, err := l.RunContainer(ctx, s.pods[0], lab.ContainerSpec{Name: "main", Program: lab.Exit(3)})
	must(t, err)
	must(t, s.awaitAll(ctx))
	must(t, eventually(ctx, follows))

	frozen := time.Now()
	must(t, l.Freeze(ctx))
	must(t, eventually(ctx, func() bool { ok, _ := p.Healthy(); return !ok }))
	took := time.Since(frozen)
	t.Logf("unhealthy after %v", took.Round(10*time.Millisecond))
	if took < threshold || took > threshold+noticed+late {
		t.Errorf("unhealthy %v after it came to stand still, want %v to %v", took, threshold, threshold+noticed)
	}
	if up := gaugeOf(t, registry, "pleg_event_stream_up"); up != 0 {
		t.Errorf("the stream of events is up: %v", up)
	}
	must(t, l.Thaw())
	must(t, eventually(ctx, follows))
	must(t, l.Trigger(ctx, c))
	must(t, s.awaitAll(ctx))
}

// gaugeOf returns the value of a gauge.
func gaugeOf(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
