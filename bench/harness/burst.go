package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// burst is pods whose containers all exit at once.
type burst struct {
	pods, containers int
	profile          string
	// limit is the number of calls the runtime serves at once; 0 means any.
	limit int
	// hung is the number of changing pods whose status calls hang.
	hung int
	// carried lets sandbox statuses carry those of the containers, as CRI-O's do.
	carried bool
}

// longest bounds the wait for events: 1000 pods take 35 s with one call at a time, and
// three times that with tail latency.
const longest = 6 * time.Minute

func bursts() []Scenario {
	var all []Scenario
	for _, profile := range []string{"node", "zero", "tail"} {
		for _, w := range []burst{{pods: 110, containers: 1}, {pods: 10, containers: 2}, {pods: 110, containers: 2}, {pods: 1000, containers: 2}} {
			w.profile = profile
			all = append(all, w.scenario(fmt.Sprintf("burst/profile=%s/containers=%d/pods=%d", profile, w.containers, w.pods), "", everyone,
				w.containers == 2 && (w.pods == 110 && profile == "node" || w.pods == 1000 && profile == "zero")))
		}
		if profile != "tail" {
			w := burst{pods: 1, containers: 2, profile: profile}
			all = append(all, w.scenario("single/profile="+profile, ", no other pods", "serial kubelet pipeline-1 pipeline-16", true))
		}
	}
	usual := burst{pods: 110, containers: 2, profile: "node"}
	carried := usual
	carried.carried = true
	all = append(all, carried.scenario("carried/profile=node/pods=110/containers=2", ", sandbox statuses carry those of the containers", twoWidths, true))
	for _, calls := range []int{1, 2, 4, 8} {
		w, of := usual, twoWidths
		if w.limit = calls; calls == 8 {
			of = "kubelet drop-in " + allWidths
		}
		all = append(all, w.scenario(limited(calls), fmt.Sprintf(", the runtime serves %d at once", calls), of, true))
	}
	many := burst{pods: 1000, containers: 2, profile: "zero", limit: 8}
	all = append(all, many.scenario(limitedZero, ", the runtime serves 8 at once", "kubelet drop-in "+allWidths, true))
	for _, n := range []int{0, 1, 5} {
		w := usual
		w.hung = n
		all = append(all, w.scenario(fmt.Sprintf("hung/pods=%d", n),
			fmt.Sprintf(", status calls of %d of them hang for %v", n, hangTimeout), twoWidths, true))
	}
	return all
}

func (w burst) scenario(name, also, of string, inQuick bool) Scenario {
	timeout := callTimeout
	if w.hung > 0 {
		timeout = hangTimeout
	}
	return Scenario{
		Name: name, Title: fmt.Sprintf("%d pods x %d exit at once, %s latency%s", w.pods, w.containers, w.profile, also),
		Candidates: candidates(of), Measure: inLab(relistPeriod, timeout, w.carried, w.measure), InQuick: inQuick,
	}
}

func (w burst) measure(ctx context.Context, l *lab) Metrics {
	l.fail(l.node.Shape("zero", w.limit))
	l.populate(ctx, w.pods, w.containers)
	l.fail(errors.Join(l.node.Shape(w.profile, w.limit), l.node.Hang(w.hung)))
	r := l.window(exited(w.pods-w.hung, w.containers), func() { l.node.Burst(w.pods, simruntime.Exit) })
	m := l.burstMetrics(r, l.node.Stats(), w.pods)
	if w.hung > 0 || w.profile == "zero" {
		// Neither the time of a hung call nor calls without latency set a limit.
		delete(m, "limit")
	}
	return m
}

// started are the events of new running pods.
func started(pods, containers int) map[string]int {
	return map[string]int{"ContainerStarted": pods * (containers + 1)}
}

// exited are the events of pods whose containers exit.
func exited(pods, containers int) map[string]int {
	return map[string]int{"ContainerDied": pods * containers}
}

// storms are cold starts on a node with many finished pods.
func storms() []Scenario {
	const running, finished, containers = 110, 1000, 2
	var all []Scenario
	for _, profile := range []string{"node", "zero"} {
		measure := func(_ context.Context, l *lab) Metrics {
			l.fail(errors.Join(l.node.Populate(running, containers), l.node.PopulateFinished(finished, containers), l.node.Shape(profile, 0)))
			l.node.Reset()
			want := started(running, containers)
			want["ContainerDied"] = finished * (containers + 1)
			r := l.startClient(want)
			m := l.burstMetrics(r, l.node.Stats(), running+finished)
			m["running"] = r.Seen["ContainerStarted"].LastMS
			return m
		}
		all = append(all, Scenario{
			Name:       "storm/profile=" + profile,
			Title:      "cold start with 110 running pods x 2 and 2000 exited containers in 1000 pods, " + profile + " latency",
			Candidates: candidates(twoWidths + " pipeline-32"), Measure: inLab(relistPeriod, callTimeout, false, measure),
			InQuick: profile == "zero",
		})
	}
	return all
}

// restarts are pods whose containers restart repeatedly; the exited ones stay.
func restarts() []Scenario {
	const pods, containers = 110, 2
	var all []Scenario
	for times := 1; times <= 4; times++ {
		measure := func(ctx context.Context, l *lab) Metrics {
			l.populate(ctx, pods, containers)
			var r control.Report
			for range times {
				r = l.window(map[string]int{"ContainerDied": pods * containers, "ContainerStarted": pods * containers}, func() {
					l.node.Burst(pods, simruntime.Restart)
				})
			}
			return l.burstMetrics(r, l.node.Stats(), pods)
		}
		all = append(all, Scenario{
			Name:       fmt.Sprintf("restart/n=%d", times),
			Title:      fmt.Sprintf("restart number %d of 110 pods x 2, no latency, exited containers stay", times),
			Candidates: candidates(oneWidth), Measure: inLab(relistPeriod/5, callTimeout, false, measure), InQuick: times == 1 || times == 3,
		})
	}
	return all
}
