package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

// burst is pods whose containers all exit at once.
type burst struct {
	pods, containers int
	profile          string
	// before is the profile until the burst; empty means that of the burst.
	before string
	// limit is the number of calls the runtime serves at once; 0 means any.
	limit int
	// hung is the number of changing pods whose status calls hang.
	hung int
	// carried lets sandbox statuses carry those of the containers, as CRI-O's do.
	carried bool
}

// longest bounds the wait for events: 1000 pods of 5 containers take 80 s with one
// call at a time, and three times that with tail latency.
const longest = 6 * time.Minute

// burstSizes are the numbers of pods for each number of containers. All
// combinations would take half a day.
var burstSizes = map[int][]int{1: {10, 110}, 2: {10, 110, 1000}, 5: {10, 110}}

func bursts() []Scenario {
	var all []Scenario
	for _, profile := range []string{"node", "zero", "tail"} {
		for _, containers := range []int{1, 2, 5} {
			for _, pods := range burstSizes[containers] {
				of := everyone
				if pods == 110 && profile == "node" && containers <= 2 {
					of += " " + string(callsOnly)
				}
				all = append(all, burst{pods: pods, containers: containers, profile: profile}.scenario(
					fmt.Sprintf("burst/profile=%s/containers=%d/pods=%d", profile, containers, pods), "", of,
					containers == 2 && (pods == 110 && profile == "node" || pods == 1000 && profile == "zero")))
			}
		}
	}
	for _, containers := range []int{2, 5} {
		w := burst{pods: 110, containers: containers, profile: "node", carried: true}
		all = append(all, w.scenario(fmt.Sprintf("carried/profile=node/pods=110/containers=%d", containers),
			", sandbox statuses carry those of the containers", twoWidths, containers == 2))
	}
	for _, profile := range []string{"zero", "node"} {
		all = append(all, burst{pods: 1, containers: 2, profile: profile}.scenario(
			"single/profile="+profile, ", no other pods", "serial kubelet pipeline-1 pipeline-16", true))
	}
	for _, w := range []burst{{pods: 1000, profile: "zero"}, {pods: 110, profile: "node"}} {
		w.containers, w.limit = 2, 8
		all = append(all, w.scenario(fmt.Sprintf("limited/profile=%s/pods=%d/limit=8", w.profile, w.pods),
			", the runtime serves 8 calls at once", "kubelet drop-in "+allWidths, true))
	}
	for _, calls := range []int{1, 2, 4} {
		w := burst{pods: 110, containers: 2, profile: "node", limit: calls}
		all = append(all, w.scenario(fmt.Sprintf("limited/profile=node/pods=110/limit=%d", calls),
			fmt.Sprintf(", the runtime serves %d at once", calls), twoWidths, true))
	}
	// The runtime still serves any number of calls, but each takes longer.
	all = append(all, burst{pods: 110, containers: 2, profile: "node", before: "zero"}.scenario(
		"shift/profile=node/pods=110", ", zero until then", twoWidths, true))
	for _, n := range []int{0, 1, 5} {
		all = append(all, burst{pods: 110, containers: 2, profile: "node", hung: n}.scenario(fmt.Sprintf("hung/pods=%d", n),
			fmt.Sprintf(", status calls of %d of them hang for %v", n, hangTimeout), twoWidths, true))
	}
	return all
}

func (w burst) scenario(name, also, of string, inQuick bool) Scenario {
	timeout := callTimeout
	if w.hung > 0 {
		timeout = hangTimeout
	}
	var nodeFlags []string
	if w.carried {
		nodeFlags = append(nodeFlags, "-statuses-in-sandbox")
	}
	return Scenario{
		Name: name, Title: fmt.Sprintf("%d pods x %d exit at once, %s latency%s", w.pods, w.containers, w.profile, also),
		Candidates: candidates(of), Measure: inLab(relistPeriod, timeout, w.measure, nodeFlags...), InQuick: inQuick,
	}
}

// started are the events of new running pods.
func started(pods, containers int) map[string]int {
	return map[string]int{"ContainerStarted": pods * (containers + 1)}
}

// exited are the events of pods whose containers exit.
func exited(pods, containers int) map[string]int {
	return map[string]int{"ContainerDied": pods * containers}
}

func (w burst) measure(ctx context.Context, l *lab) Metrics {
	w.prepare(ctx, l)
	r := l.window(exited(w.pods-w.hung, w.containers), false, func() {
		l.order(control.Order{Do: control.NodeBurst, Change: "exit", Pods: w.pods})
	})
	m := l.burstMetrics(r, w.pods)
	if w.hung > 0 || w.profile == "zero" {
		// Neither the time of a hung call nor calls without latency set a limit.
		m.remove("limit", "ratio")
	}
	return m
}

// prepare brings the lab to the moment before the burst. A pipeline that finds
// its width first inspects the pods under the latencies of the burst, unless the
// scenario changes them. For other candidates that would only take time.
func (w burst) prepare(ctx context.Context, l *lab) {
	before := cmp.Or(w.before, "zero")
	if w.before == "" && l.candidate.findsWidth() {
		before = w.profile
	}
	l.order(control.Order{Do: control.NodeShape, Profile: before, Limit: w.limit})
	l.populate(ctx, w.pods, w.containers)
	l.order(
		control.Order{Do: control.NodeShape, Profile: w.profile, Limit: w.limit},
		control.Order{Do: control.NodeHang, Pods: w.hung},
	)
}

func storms() []Scenario {
	var all []Scenario
	for _, profile := range []string{"node", "zero"} {
		w := storm{running: 110, finished: 1000, containers: 2, profile: profile}
		all = append(all, Scenario{
			Name:       "storm/profile=" + profile,
			Title:      "cold start with 110 running pods x 2 and 2000 exited containers in 1000 pods, " + profile + " latency",
			Candidates: candidates(twoWidths + " pipeline-32"), Measure: inLab(relistPeriod, callTimeout, w.measure),
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

func (w storm) measure(_ context.Context, l *lab) Metrics {
	l.order(
		control.Order{Do: control.NodePopulate, Pods: w.running, Containers: w.containers},
		control.Order{Do: control.NodePopulate, Pods: w.finished, Containers: w.containers, Finished: true},
		control.Order{Do: control.NodeShape, Profile: w.profile},
		control.Order{Do: control.NodeReset},
	)
	want := started(w.running, w.containers)
	want["ContainerDied"] = w.finished * (w.containers + 1)
	r := l.startClient(want)
	m := l.burstMetrics(r, w.running+w.finished)
	m["running"] = r.Seen["ContainerStarted"].LastMS
	if w.profile == "zero" {
		m.remove("limit", "ratio")
	}
	return m
}

func restarts() []Scenario {
	var all []Scenario
	for n := 1; n <= 4; n++ {
		w := restart{pods: 110, containers: 2, times: n}
		all = append(all, Scenario{
			Name:       fmt.Sprintf("restart/n=%d", n),
			Title:      fmt.Sprintf("restart number %d of 110 pods x 2, no latency, exited containers stay", n),
			Candidates: candidates(oneWidth), Measure: inLab(relistPeriod/5, callTimeout, w.measure), InQuick: n == 1 || n == 3,
		})
	}
	return all
}

// restart is pods whose containers restart repeatedly; the exited ones stay.
type restart struct{ pods, containers, times int }

func (w restart) measure(ctx context.Context, l *lab) Metrics {
	l.populate(ctx, w.pods, w.containers)
	n := w.pods * w.containers
	var r control.Report
	for range w.times {
		r = l.window(map[string]int{"ContainerDied": n, "ContainerStarted": n}, false, func() {
			l.order(control.Order{Do: control.NodeBurst, Change: "restart", Pods: w.pods})
		})
	}
	m := l.burstMetrics(r, w.pods)
	m.remove("limit", "ratio")
	return m
}
