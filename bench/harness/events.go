package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

// streamUp is how long a candidate with CRI events gets until it relies on its
// event stream and has made the list after that.
const streamUp = 2 * time.Second

// eventful measures what CRI events change: the delay of an event, and the cost
// of a node without changes.
func eventful() []Scenario {
	candidates := []Candidate{serial, kubelet, pipelineOf(16), eventsOf(16)}
	late := churn{pods: 110, containers: 2, rate: 10, seconds: 10}
	quiet := quiet{pods: 110, containers: 2, span: 10 * time.Second}
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
	l, err := b.newLab(ctx, c, relistPeriod, callTimeout)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.populate(w.pods, w.containers); err != nil {
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

// metrics are those of a minute. It returns an error unless the candidate made no
// list with CRI events, and a list each period without.
func (w quiet) metrics(c Candidate, r control.Report, at control.Answer) (Metrics, error) {
	lists, least := at.RPCs["ListContainers"].Calls, int64(w.span/relistPeriod/2)
	if len(r.Seen) > 0 || statusCalls(at) > 0 || c.events() != (lists == 0) || !c.events() && lists < least {
		return nil, fmt.Errorf("wrong work: events %v, %d status calls and %d lists on an idle node in %v", r.Seen, statusCalls(at), lists, w.span)
	}
	return idleMetrics(r, at, r.Usage.WallSeconds/60), nil
}
