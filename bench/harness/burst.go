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
	// before is the profile until the burst; empty means that of the burst.
	before string
	// limit is the number of calls the runtime serves at once; 0 means any.
	limit int
	// hung is the number of changing pods whose status calls hang.
	hung int
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

// singles are bursts of one pod, the smallest change there is.
func singles() []Scenario {
	var all []Scenario
	for _, profile := range []string{"zero", "node"} {
		w := burst{pods: 1, containers: 2, profile: profile}
		all = append(all, Scenario{
			Name:       "single/profile=" + profile,
			Group:      "single",
			Title:      "the 2 containers of the only pod exit, " + profile + " latency",
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
			Title:      fmt.Sprintf("%d pods x 2 exit at once, %s latency, the runtime serves 8 calls at once", w.pods, profile),
			Candidates: append([]Candidate{kubelet, fixedOf(4), fixedOf(8), fixedOf(16), fixedOf(32)}, pipelines(widths...)...),
			Measure:    w.measure, InQuick: true,
		})
	}
	return all
}

// shifts are runtimes whose latency rises at the moment of the burst; they still
// serve any number of calls.
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
			Title:      fmt.Sprintf("110 pods x 2 exit at once, node latency, status calls of %d of them hang for %v", n, hangTimeout),
			Candidates: []Candidate{serial, kubelet, pipelineOf(8), pipelineOf(16)}, Measure: w.measure,
			InQuick: true,
		})
	}
	return all
}

// started are the events of new running pods.
func started(pods, containers int) map[string]int {
	return map[string]int{"ContainerStarted": pods * (containers + 1)}
}

// exited are the events of pods whose containers exit.
func exited(pods, containers int) map[string]int {
	return map[string]int{"ContainerDied": pods * containers}
}

func (w burst) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	timeout := callTimeout
	if w.hung > 0 {
		timeout = hangTimeout
	}
	l, err := b.newLab(ctx, c, relistPeriod, timeout)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := w.prepare(l, c); err != nil {
		return nil, err
	}
	r, err := l.window(exited(w.pods-w.hung, w.containers), false, func() error {
		return l.order(control.Order{Do: control.NodeBurst, Change: "exit", Pods: w.pods})
	})
	if err != nil {
		return nil, err
	}
	m, err := l.burstMetrics(c, r, w.pods)
	if w.hung > 0 || w.profile == "zero" {
		// Neither the time of a hung call nor calls without latency set a limit.
		m.remove("limit", "ratio")
	}
	return m, err
}

// prepare brings the lab to the moment before the burst. A pipeline that finds
// its width first inspects the pods under the latencies of the burst, unless the
// scenario changes them. For other candidates that would only take time.
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
	if err := l.populate(w.pods, w.containers); err != nil {
		return err
	}
	return l.order(
		control.Order{Do: control.NodeShape, Profile: w.profile, Limit: w.limit},
		control.Order{Do: control.NodeHang, Pods: w.hung},
	)
}

// burstMetrics combines what the client saw with what the node counted.
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

// limit is the shortest time in milliseconds for a client with as many status
// calls in flight: one list, and the time of all status calls divided by the most
// in flight. The calls in flight do not include the lists.
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
