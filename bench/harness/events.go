package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

// eventful are what following the runtime's events changes: how soon a change is
// told, and what a node pays on which nothing changes.
func eventful() []Scenario {
	candidates := []Candidate{serial, kubelet, pipelineOf(16), eventsOf(16)}
	late := churn{pods: 110, containers: 2, rate: 10, seconds: 10}
	still := still{pods: 110, containers: 2, span: 10 * time.Second}
	return []Scenario{
		{
			Name:       "events/change/seconds=10",
			Group:      "events",
			Title:      "110 pods x 2, 10 containers replaced a second for 10 s, node latency",
			Candidates: candidates, Measure: late.measure, InQuick: true,
		},
		{
			Name:       "events/idle/seconds=10",
			Group:      "events",
			Title:      "110 pods x 2 of which nothing changes: one minute, from 10 s of it",
			Candidates: candidates, Measure: still.measure, InQuick: true,
		},
	}
}

// streamUp is how long a candidate with events gets for its stream to count as
// up, and for the list after it.
const streamUp = 2 * time.Second

// awaitStream waits until a candidate that follows events does.
func (l *lab) awaitStream(ctx context.Context, c Candidate) error {
	if !c.events() {
		return nil
	}
	return pause(ctx, streamUp)
}

// still is a node on which nothing changes for a while.
type still struct {
	pods, containers int
	span             time.Duration
}

func (w still) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	l, err := b.newLab(ctx, c, settings{period: relistPeriod, timeout: 2 * time.Minute})
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.settle(w.pods, w.containers); err != nil {
		return nil, err
	}
	if err := l.awaitStream(ctx, c); err != nil {
		return nil, err
	}
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

// metrics are those of a minute. They are an error if the candidate did not what
// it is to be measured at: nothing with events, a list each period without.
func (w still) metrics(c Candidate, r control.Report, at control.Answer) (Metrics, error) {
	lists, least := at.RPCs["ListContainers"].Calls, int64(w.span/relistPeriod/2)
	if len(r.Seen) > 0 || statusCalls(at) > 0 || c.events() != (lists == 0) || !c.events() && lists < least {
		return nil, fmt.Errorf("wrong work: events %v, %d status calls and %d lists on an idle node in %v", r.Seen, statusCalls(at), lists, w.span)
	}
	return idleMetrics(r, at, r.Usage.WallSeconds/60), nil
}
