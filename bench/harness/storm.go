package main

import (
	"context"
	"fmt"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

func storms() []Scenario {
	var all []Scenario
	for _, profile := range []string{"node", "zero"} {
		w := storm{running: 110, finished: 1000, containers: 2, profile: profile}
		all = append(all, Scenario{
			Name:       "storm/profile=" + profile,
			Group:      "storm",
			Title:      "cold start with 110 running pods x 2 and 2000 exited containers in 1000 pods, " + profile + " latency",
			Candidates: []Candidate{serial, kubelet, pipelineOf(8), pipelineOf(16), pipelineOf(32)}, Measure: w.measure,
			InQuick: profile == "zero",
		})
	}
	return all
}

// storm is a cold start on a node with many finished pods.
type storm struct {
	running, finished, containers int
	profile                       string
}

func (w storm) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	l, err := b.newLab(ctx, c, relistPeriod, callTimeout)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.order(
		control.Order{Do: control.NodePopulate, Pods: w.running, Containers: w.containers},
		control.Order{Do: control.NodePopulate, Pods: w.finished, Containers: w.containers, Finished: true},
		control.Order{Do: control.NodeShape, Profile: w.profile},
		control.Order{Do: control.NodeReset},
	); err != nil {
		return nil, err
	}
	want := started(w.running, w.containers)
	want["ContainerDied"] = w.finished * (w.containers + 1)
	r, err := l.startClient(want)
	if err != nil {
		return nil, err
	}
	m, err := l.burstMetrics(c, r, w.running+w.finished)
	if err != nil {
		return nil, err
	}
	m["running"] = r.Seen["ContainerStarted"].LastMS
	if w.profile == "zero" {
		m.remove("limit", "ratio")
	}
	return m, nil
}

func restarts() []Scenario {
	var all []Scenario
	for n := 1; n <= 4; n++ {
		w := restart{pods: 110, containers: 2, times: n}
		all = append(all, Scenario{
			Name:       fmt.Sprintf("restart/n=%d", n),
			Group:      "restart",
			Title:      fmt.Sprintf("restart number %d of 110 pods x 2, no latency, exited containers stay", n),
			Candidates: []Candidate{serial, kubelet, pipelineOf(16)}, Measure: w.measure, InQuick: n == 1 || n == 3,
		})
	}
	return all
}

// restart is pods whose containers restart repeatedly; the exited ones stay.
type restart struct{ pods, containers, times int }

func (w restart) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	l, err := b.newLab(ctx, c, relistPeriod/5, callTimeout)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.populate(w.pods, w.containers); err != nil {
		return nil, err
	}
	n := w.pods * w.containers
	var r control.Report
	for range w.times {
		r, err = l.window(map[string]int{"ContainerDied": n, "ContainerStarted": n}, false, func() error {
			return l.order(control.Order{Do: control.NodeBurst, Change: "restart", Pods: w.pods})
		})
		if err != nil {
			return nil, err
		}
	}
	m, err := l.burstMetrics(c, r, w.pods)
	m.remove("limit", "ratio")
	return m, err
}
