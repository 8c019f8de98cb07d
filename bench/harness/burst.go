package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

// burst is pods whose containers all exit at once.
type burst struct {
	pods, containers int
	profile          string
	// before is the profile in which the candidate gets to know the pods; that
	// of the burst if it is empty.
	before string
	// limit is the number of calls the runtime takes at once; 0 means any.
	limit int
	// hung is the number of the changing pods whose status calls hang.
	hung int
}

// longest bounds the wait for a burst: 1000 pods of 5 containers one after the
// other take 80 s, with a heavy tail three times that.
const longest = 6 * time.Minute

// burstSizes are pods by containers: small and usual numbers with any, and pods
// of two in any number. Every pair of the two would take half a day.
var burstSizes = map[int][]int{1: {10, 110}, 2: {10, 110, 1000}, 5: {10, 110}}

func bursts() []Scenario {
	var all []Scenario
	for _, profile := range []string{"node", "zero", "tail"} {
		for _, containers := range []int{1, 2, 5} {
			for _, pods := range burstSizes[containers] {
				w := burst{pods: pods, containers: containers, profile: profile}
				all = append(all, Scenario{
					Name:       fmt.Sprintf("burst/profile=%s/containers=%d/pods=%d", profile, containers, pods),
					Group:      "burst",
					Title:      fmt.Sprintf("%d pods x %d exit at once, %s latency", pods, containers, profile),
					Candidates: everyone(), Measure: w.measure,
					InQuick: containers == 2 && (pods == 110 && profile == "node" || pods == 1000 && profile == "zero"),
				})
			}
		}
	}
	return all
}

// singles are bursts of one pod: the least a relist can have to do.
func singles() []Scenario {
	var all []Scenario
	for _, profile := range []string{"zero", "node"} {
		w := burst{pods: 1, containers: 2, profile: profile}
		all = append(all, Scenario{
			Name:       "single/profile=" + profile,
			Group:      "single",
			Title:      "the 2 containers of one pod, alone on the node, exit, " + profile + " latency",
			Candidates: []Candidate{serial, kubelet, pipelineOf(1), pipelineOf(16)}, Measure: w.measure, InQuick: true,
		})
	}
	return all
}

func limited() []Scenario {
	var all []Scenario
	for _, profile := range []string{"zero", "node"} {
		w := burst{pods: 1000, containers: 2, profile: profile, limit: 8}
		if profile == "node" {
			w.pods = 110
		}
		all = append(all, Scenario{
			Name:       fmt.Sprintf("limited/profile=%s/pods=%d/limit=8", profile, w.pods),
			Group:      "limited",
			Title:      fmt.Sprintf("%d pods x 2 exit at once, %s latency, a runtime that takes 8 calls at once", w.pods, profile),
			Candidates: append([]Candidate{kubelet, fixedOf(4), fixedOf(8), fixedOf(16), fixedOf(32)}, pipelines(widths...)...),
			Measure:    w.measure, InQuick: true,
		})
	}
	return all
}

// shifts are runtimes that become slow at the moment of the burst, though they
// still take any number of calls.
func shifts() []Scenario {
	w := burst{pods: 110, containers: 2, profile: "node", before: "zero"}
	return []Scenario{{
		Name:       "shift/profile=node/pods=110",
		Group:      "shift",
		Title:      "110 pods x 2 exit at once, and the latency rises from zero to node",
		Candidates: []Candidate{serial, kubelet, pipelineOf(8), pipelineOf(16), fixedOf(8), fixedOf(16)},
		Measure:    w.measure, InQuick: true,
	}}
}

func hung() []Scenario {
	var all []Scenario
	for _, n := range []int{0, 1, 5} {
		w := burst{pods: 110, containers: 2, profile: "node", hung: n}
		all = append(all, Scenario{
			Name:       fmt.Sprintf("hung/pods=%d", n),
			Group:      "hung",
			Title:      fmt.Sprintf("110 pods x 2 exit at once, node latency, the status calls of %d hang for %v", n, hangTimeout),
			Candidates: []Candidate{serial, kubelet, pipelineOf(8), pipelineOf(16)}, Measure: w.measure,
			InQuick: true,
		})
	}
	return all
}

// started and exited are the events of so many running pods when they are first
// seen, and when their containers exit.
func started(pods, containers int) map[string]int {
	return map[string]int{"ContainerStarted": pods * (containers + 1)}
}

func exited(pods, containers int) map[string]int {
	return map[string]int{"ContainerDied": pods * containers}
}

func (w burst) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	timeout := 2 * time.Minute
	if w.hung > 0 {
		timeout = hangTimeout
	}
	l, err := b.newLab(ctx, c, settings{period: relistPeriod, timeout: timeout})
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := w.prepare(l, c); err != nil {
		return nil, err
	}
	want := exited(w.pods-w.hung, w.containers)
	if err := l.expect(want, false); err != nil {
		return nil, err
	}
	if err := l.order(control.Order{Do: control.NodeBurst, Change: "exit", Pods: w.pods}); err != nil {
		return nil, err
	}
	r, err := l.wait(want, longest)
	if err != nil {
		return nil, err
	}
	m, err := l.burstMetrics(c, r, w.pods)
	if w.hung > 0 || w.profile == "zero" {
		// The time of calls that hang is no work, and calls that take no time
		// set no limit.
		delete(m, "limit")
		delete(m, "ratio")
	}
	return m, err
}

// prepare brings the lab to the moment before the burst. Who learns from the time
// calls take gets to know the pods under the latencies of the burst, unless it is
// the point that they change; for the others that would only cost time.
func (w burst) prepare(l *lab, c Candidate) error {
	before := w.before
	switch {
	case before != "":
	case c.findsWidth():
		before = w.profile
	default:
		before = "zero"
	}
	if err := l.order(control.Order{Do: control.NodeShape, Profile: before, Limit: w.limit}); err != nil {
		return err
	}
	if err := l.settle(w.pods, w.containers); err != nil {
		return err
	}
	return l.order(
		control.Order{Do: control.NodeShape, Profile: w.profile, Limit: w.limit},
		control.Order{Do: control.NodeHang, Pods: w.hung},
	)
}

// settle adds pods and starts the candidate, which then knows them all.
func (l *lab) settle(pods, containers int) error {
	if err := l.order(control.Order{Do: control.NodePopulate, Pods: pods, Containers: containers}); err != nil {
		return err
	}
	return l.startClient(started(pods, containers))
}

// startClient starts the candidate, which must then see so many events.
func (l *lab) startClient(want map[string]int) error {
	if err := l.expect(want, false); err != nil {
		return err
	}
	if _, err := l.client.ask(control.Command{Do: control.ClientStart}); err != nil {
		return err
	}
	_, err := l.wait(want, longest)
	return err
}

// burstMetrics adds to what the client saw what the node counted since.
func (l *lab) burstMetrics(c Candidate, r control.Report, pods int) (Metrics, error) {
	at, err := l.node.ask(control.Order{Do: control.NodeStats})
	if err != nil {
		return nil, err
	}
	m := Metrics{
		"client": r.Usage.CPUSeconds * 1e3, "server": at.CPUSeconds * 1e3,
		"allocs": float64(r.Usage.Allocs), "bytes": float64(r.Usage.AllocBytes) / 1024,
		"peak": float64(at.PeakInFlight), "waiting": float64(at.PeakArrived),
		"calls":  float64(statusCalls(at)) / float64(pods),
		"missed": float64(r.Missed), "repaired": float64(r.Repaired),
	}
	if r.Width > 0 {
		m["width"] = float64(r.Width)
	}
	first := true
	for _, seen := range r.Seen {
		if first || seen.FirstMS < m["first"] {
			m["first"], first = seen.FirstMS, false
		}
		m["last"] = max(m["last"], seen.LastMS)
	}
	if limit := limit(at, c); limit > 1 {
		m["limit"], m["ratio"] = limit, m["last"]/limit
	}
	return m, nil
}

func statusCalls(at control.Answer) int64 {
	return at.RPCs["ContainerStatus"].Calls + at.RPCs["PodSandboxStatus"].Calls
}

// limit is the time in milliseconds below which no client gets that had as many
// status calls in flight: one list, and the time of all status calls divided by
// the most in flight. The lists are not among those in flight.
func limit(at control.Answer, c Candidate) float64 {
	list := max(mean(at.RPCs["ListContainers"]), mean(at.RPCs["ListPodSandbox"]))
	total := at.RPCs["ContainerStatus"].TimeMS + at.RPCs["PodSandboxStatus"].TimeMS
	width := min(c.width(), at.PeakInFlight)
	if width == 0 {
		return 0
	}
	return list + total/float64(width)
}

func mean(r control.RPC) float64 {
	if r.Calls == 0 {
		return 0
	}
	return r.TimeMS / float64(r.Calls)
}
