package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

func churns() []Scenario {
	var all []Scenario
	for _, w := range []churn{{rate: 10, seconds: 15}, {rate: 30, seconds: 15}, {rate: 100, seconds: 15}, {rate: 20, seconds: 120}} {
		w.pods, w.containers = 500, 2
		s := Scenario{
			Name:       fmt.Sprintf("churn/rate=%.0f/seconds=%.0f", w.rate, w.seconds),
			Title:      fmt.Sprintf("500 pods x 2, %.0f containers replaced a second for %.0f s, node latency", w.rate, w.seconds),
			Candidates: candidates(oneWidth), Measure: w.measure,
			InQuick: w.rate == 30, SideBySide: w.seconds > 15,
		}
		if w.rate > 30 {
			// With one call at a time the relists take longer and longer, until a
			// container starts and ends between two of them and is never seen.
			s.Candidates = candidates("pipeline-16 pipeline-32")
		}
		all = append(all, s)
	}
	return all
}

// churn is containers that are replaced one after the other.
type churn struct {
	pods, containers int
	rate, seconds    float64
}

func (w churn) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	l, err := b.newPopulatedLab(ctx, c, relistPeriod, w.pods, w.containers)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.order(control.Order{Do: control.NodeShape, Profile: "node"}); err != nil {
		return nil, err
	}
	n := int(w.rate * w.seconds)
	want := map[string]int{"ContainerStarted": n, "ContainerDied": n, "ContainerRemoved": n}
	var made control.Answer
	r, err := l.window(want, true, func() (err error) {
		made, err = l.node.ask(control.Order{Do: control.NodeChurn, Rate: w.rate, Seconds: w.seconds})
		return err
	})
	if err != nil {
		return nil, err
	}
	m, err := l.burstMetrics(c, r, n)
	if err != nil {
		return nil, err
	}
	m.remove("first", "last", "limit", "ratio")
	delays := delays(made.Log, r.Log)
	m["p50"], m["p99"] = percentile(delays, 50), percentile(delays, 99)
	m["rate"] = float64(3*n) / r.Usage.WallSeconds
	return m, nil
}

// delays returns the sorted times in milliseconds from each change to its event.
func delays(changes, events []control.Arrival) []float64 {
	arrived := make(map[string]int64, len(events))
	for _, e := range events {
		if e.Type == "ContainerStarted" {
			arrived[e.ID] = e.UnixNS
		}
	}
	var out []float64
	for _, c := range changes {
		if at, ok := arrived[c.ID]; ok {
			out = append(out, float64(at-c.UnixNS)/1e6)
		}
	}
	slices.Sort(out)
	return out
}

// percentile of sorted values by the nearest rank; 0 without values.
func percentile(sorted []float64, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, (len(sorted)*p+99)/100-1)]
}
