package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

func idles() []Scenario {
	var all []Scenario
	for _, pods := range []int{110, 1000, 5000} {
		w := idle{pods: pods, containers: 2, relists: 40}
		all = append(all, Scenario{
			Name:       fmt.Sprintf("idle/pods=%d", pods),
			Group:      "idle",
			Title:      fmt.Sprintf("one relist of %d unchanged pods x 2", pods),
			Candidates: []Candidate{serial, kubelet, pipelineOf(16)}, Measure: w.measure, InQuick: true,
		})
	}
	return all
}

// idle is a number of relists in which nothing changes.
type idle struct{ pods, containers, relists int }

// idlePeriod is shorter than the kubelet's second, to measure relists and not the
// time between them.
const idlePeriod = 50 * time.Millisecond

func (w idle) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	l, err := b.newLab(ctx, c, idlePeriod, callTimeout)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.populate(w.pods, w.containers); err != nil {
		return nil, err
	}
	if err := l.expect(nil, false); err != nil {
		return nil, err
	}
	at, err := l.awaitRelists(ctx, w.relists)
	if err != nil {
		return nil, err
	}
	r, err := l.client.ask(control.Command{Do: control.ClientReport})
	if err != nil {
		return nil, err
	}
	if len(r.Seen) > 0 || statusCalls(at) > 0 {
		return nil, fmt.Errorf("wrong work: events %v and %d status calls on an idle node", r.Seen, statusCalls(at))
	}
	n := float64(at.RPCs["ListContainers"].Calls)
	m := idleMetrics(r, at, n)
	m["wall"] = r.Usage.WallSeconds*1e3/n - float64(idlePeriod.Milliseconds())
	return m, nil
}

// idleMetrics is the cost of a window without a change, divided by n.
func idleMetrics(r control.Report, at control.Answer, n float64) Metrics {
	return Metrics{
		"client": r.Usage.CPUSeconds * 1e3 / n, "server": at.CPUSeconds * 1e3 / n,
		"allocs": float64(r.Usage.Allocs) / n, "bytes": float64(r.Usage.AllocBytes) / 1024 / n,
		"rss": float64(r.Usage.RSSBytes) / (1 << 20),
	}
}
