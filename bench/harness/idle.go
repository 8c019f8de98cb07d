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
			Title:      fmt.Sprintf("one relist of %d unchanged pods x 2", pods),
			Candidates: candidates(oneWidth), Measure: w.measure, InQuick: true,
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
	l, err := b.newPopulatedLab(ctx, c, idlePeriod, w.pods, w.containers)
	if err != nil {
		return nil, err
	}
	defer l.close()
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

// streamUp is how long a candidate with CRI events gets until it relies on its
// event stream and has made the list after that.
const streamUp = 2 * time.Second

// eventful measures what CRI events change: the delay of an event, and the cost
// of a node without changes.
func eventful() []Scenario {
	candidates := candidates(oneWidth + " events-16")
	late := churn{pods: 110, containers: 2, rate: 10, seconds: 10}
	quiet := quiet{pods: 110, containers: 2, span: 10 * time.Second}
	return []Scenario{
		{
			Name:       "events/change/seconds=10",
			Title:      "110 pods x 2, 10 containers replaced a second for 10 s, node latency",
			Candidates: candidates, Measure: late.measure, InQuick: true,
		},
		{
			Name:       "events/idle/seconds=10",
			Title:      "one minute of 110 unchanged pods x 2, measured for 10 s",
			Candidates: candidates, Measure: quiet.measure, InQuick: true,
		},
	}
}

// quiet is a node on which nothing changes for a time.
type quiet struct {
	pods, containers int
	span             time.Duration
}

func (w quiet) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	l, err := b.newPopulatedLab(ctx, c, relistPeriod, w.pods, w.containers)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.expect(nil, false); err != nil {
		return nil, err
	}
	if err := l.order(control.Order{Do: control.NodeReset}); err != nil {
		return nil, err
	}
	if err := pause(ctx, w.span); err != nil {
		return nil, err
	}
	at, err := l.node.ask(control.Order{Do: control.NodeStats})
	if err != nil {
		return nil, err
	}
	r, err := l.client.ask(control.Command{Do: control.ClientReport})
	if err != nil {
		return nil, err
	}
	return w.metrics(c, r, at)
}

// metrics are those of a minute. It returns an error unless the candidate made no
// list with CRI events, and a list each period without.
func (w quiet) metrics(c Candidate, r control.Report, at control.Answer) (Metrics, error) {
	lists, least := at.RPCs["ListContainers"].Calls, int64(w.span/relistPeriod/2)
	if len(r.Seen) > 0 || statusCalls(at) > 0 || c.events() != (lists == 0) || !c.events() && lists < least {
		return nil, fmt.Errorf("wrong work: events %v, %d status calls and %d lists on an idle node in %v", r.Seen, statusCalls(at), lists, w.span)
	}
	return idleMetrics(r, at, r.Usage.WallSeconds/60), nil
}
