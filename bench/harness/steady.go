package main

import (
	"context"
	"fmt"
	"slices"
	"time"

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

// storm is a cold start on a node with many dead pods.
type storm struct {
	running, finished, containers int
	profile                       string
}

func (w storm) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	l, err := b.newLab(ctx, c, settings{period: relistPeriod, timeout: 2 * time.Minute})
	if err != nil {
		return nil, err
	}
	defer l.close()
	want := started(w.running, w.containers)
	want["ContainerDied"] = w.finished * (w.containers + 1)
	if err := l.order(
		control.Order{Do: control.NodePopulate, Pods: w.running, Containers: w.containers},
		control.Order{Do: control.NodePopulate, Pods: w.finished, Containers: w.containers, Finished: true},
		control.Order{Do: control.NodeShape, Profile: w.profile},
		control.Order{Do: control.NodeReset},
	); err != nil {
		return nil, err
	}
	if err := l.expect(want, false); err != nil {
		return nil, err
	}
	if _, err := l.client.ask(control.Command{Do: control.ClientStart}); err != nil {
		return nil, err
	}
	r, err := l.wait(want, longest)
	if err != nil {
		return nil, err
	}
	m, err := l.burstMetrics(c, r, w.running+w.finished)
	if err != nil {
		return nil, err
	}
	m["running"] = r.Seen["ContainerStarted"].LastMS
	if w.profile == "zero" {
		delete(m, "limit")
		delete(m, "ratio")
	}
	return m, nil
}

// restarts is the containers of a pod that restart again and again, the dead
// ones staying.
func restarts() []Scenario {
	var all []Scenario
	for n := 1; n <= 4; n++ {
		w := restart{pods: 110, containers: 2, times: n}
		all = append(all, Scenario{
			Name:       fmt.Sprintf("restart/n=%d", n),
			Group:      "restart",
			Title:      fmt.Sprintf("110 pods x 2 restart for the %d. time, no latency, dead containers stay", n),
			Candidates: []Candidate{serial, kubelet, pipelineOf(16)}, Measure: w.measure, InQuick: n == 1 || n == 3,
		})
	}
	return all
}

type restart struct{ pods, containers, times int }

func (w restart) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	l, err := b.newLab(ctx, c, settings{period: relistPeriod / 5, timeout: 2 * time.Minute})
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.settle(w.pods, w.containers); err != nil {
		return nil, err
	}
	n := w.pods * w.containers
	want := map[string]int{"ContainerDied": n, "ContainerStarted": n}
	var r control.Report
	for range w.times {
		if err := l.expect(want, false); err != nil {
			return nil, err
		}
		if err := l.order(control.Order{Do: control.NodeBurst, Change: "restart", Pods: w.pods}); err != nil {
			return nil, err
		}
		if r, err = l.wait(want, longest); err != nil {
			return nil, err
		}
	}
	m, err := l.burstMetrics(c, r, w.pods)
	delete(m, "limit")
	delete(m, "ratio")
	return m, err
}

func idles() []Scenario {
	var all []Scenario
	for _, pods := range []int{110, 1000, 5000} {
		w := idle{pods: pods, containers: 2, relists: 40}
		all = append(all, Scenario{
			Name:       fmt.Sprintf("idle/pods=%d", pods),
			Group:      "idle",
			Title:      fmt.Sprintf("%d pods x 2 of which nothing changes: one relist", pods),
			Candidates: []Candidate{serial, kubelet, pipelineOf(16)}, Measure: w.measure, InQuick: true,
		})
	}
	return all
}

type idle struct{ pods, containers, relists int }

// idlePeriod is shorter than the kubelet's second: what is measured is the
// relist, and not the time between two.
const idlePeriod = 50 * time.Millisecond

func (w idle) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	l, err := b.newLab(ctx, c, settings{period: idlePeriod, timeout: 2 * time.Minute})
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.settle(w.pods, w.containers); err != nil {
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

// idleMetrics are what a window without a change has cost, divided by n.
func idleMetrics(r control.Report, at control.Answer, n float64) Metrics {
	return Metrics{
		"client": r.Usage.CPUSeconds * 1e3 / n, "server": at.CPUSeconds * 1e3 / n,
		"allocs": float64(r.Usage.Allocs) / n, "bytes": float64(r.Usage.AllocBytes) / 1024 / n,
		"rss": float64(r.Usage.RSSBytes) / (1 << 20),
	}
}

// awaitRelists returns what the node counted in so many relists from now on.
func (l *lab) awaitRelists(ctx context.Context, relists int) (control.Answer, error) {
	began := time.Now()
	at, err := l.node.ask(control.Order{Do: control.NodeReset})
	for err == nil && at.RPCs["ListContainers"].Calls < int64(relists) {
		if time.Since(began) > longest {
			return at, fmt.Errorf("%d relists in %v, want %d", at.RPCs["ListContainers"].Calls, longest, relists)
		}
		if err = pause(ctx, idlePeriod); err == nil {
			at, err = l.node.ask(control.Order{Do: control.NodeStats})
		}
	}
	return at, err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func churns() []Scenario {
	everyone := []Candidate{serial, kubelet, pipelineOf(16)}
	var all []Scenario
	for _, w := range []churn{{rate: 10, seconds: 15}, {rate: 30, seconds: 15}, {rate: 100, seconds: 15}, {rate: 20, seconds: 120}} {
		w.pods, w.containers = 500, 2
		s := Scenario{
			Name:       fmt.Sprintf("churn/rate=%.0f/seconds=%.0f", w.rate, w.seconds),
			Group:      "churn",
			Title:      fmt.Sprintf("500 pods x 2, %.0f containers replaced a second for %.0f s, node latency", w.rate, w.seconds),
			Candidates: everyone, Measure: w.measure,
			InQuick: w.rate == 30, SideBySide: w.seconds > 15,
		}
		if w.rate > 30 {
			// One call at a time is not enough for more: its relists take ever longer, until
			// a container comes and goes between two and is never seen.
			s.Candidates = pipelines(16, 32)
		}
		all = append(all, s)
	}
	return all
}

type churn struct {
	pods, containers int
	rate, seconds    float64
}

func (w churn) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
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
	if err := l.order(control.Order{Do: control.NodeShape, Profile: "node"}); err != nil {
		return nil, err
	}
	n := int(w.rate * w.seconds)
	want := map[string]int{"ContainerStarted": n, "ContainerDied": n, "ContainerRemoved": n}
	if err := l.expect(want, true); err != nil {
		return nil, err
	}
	made, err := l.node.ask(control.Order{Do: control.NodeChurn, Rate: w.rate, Seconds: w.seconds})
	if err != nil {
		return nil, err
	}
	r, err := l.wait(want, longest)
	if err != nil {
		return nil, err
	}
	m, err := l.burstMetrics(c, r, n)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"first", "last", "limit", "ratio"} {
		delete(m, key)
	}
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

// percentile of sorted values by the nearest rank; 0 of none.
func percentile(sorted []float64, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, (len(sorted)*p+99)/100-1)]
}
