package conform

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// scenario is what most promises about events are judged by: some pods live at the same
// time while two clients watch.
type scenario struct {
	pods          [livingPods]*pod
	first, second []received
	ended         error
}

const (
	livingPods    = 6
	containerRuns = 3
)

// watched runs the scenario once.
func (t *trial) watched() *scenario {
	t.needEvents()
	if s := t.scenario; s == nil {
		s = &scenario{}
		t.scenario = s
		s.ended = attempt(func() {
			watchers := t.listen(true, false)
			defer watchers.close()
			t.each(livingPods, livingPods, func(t *trial, i int) { s.pods[i] = t.runLife() })
			t.settle(watchers, s.pods[:]...)
			s.first, s.second = watchers[0].of(s.pods[:]...), watchers[1].of(s.pods[:]...)
		})
	}
	check(t.scenario.ended)
	return t.scenario
}

// runLife runs a pod and its containers to the end, one after the other.
func (t *trial) runLife() *pod {
	p := t.runPod(nil)
	for range containerRuns {
		st := t.runToEnd(p, 0, "exit", "0", "200ms") // the runtime sees it run
		t.sleep(50 * time.Millisecond)               // a removal may overtake the event of the end
		t.removeContainer(p, st.GetId())
	}
	t.removePod(p)
	return p
}

// judged tries a promise that the scenario shows. find returns what was wrong, of how many
// events.
func judged(what string, find func(*scenario) (wrong []string, of int)) func(*trial) result {
	return func(t *trial) result {
		wrong, of := find(t.watched())
		if len(wrong) == 0 {
			return judge(true, "%d events", of)
		}
		times := make(map[string]int)
		for _, text := range wrong {
			times[text]++
		}
		var kinds []string
		for _, text := range slices.Sorted(maps.Keys(times)) {
			kinds = append(kinds, fmt.Sprintf("%d %s", times[text], text))
		}
		const examples = 8
		return judge(false, "%d of %d %s: %s", len(wrong), of, what, strings.Join(kinds[:min(len(kinds), examples)], ", "))
	}
}

// missing looks for each step in the events of both clients.
func missing(sandbox bool) func(*scenario) (wrong []string, of int) {
	return func(l *scenario) (wrong []string, of int) {
		for _, p := range l.pods {
			for _, want := range p.steps {
				if want.sandbox != sandbox {
					continue
				}
				of++
				if !contains(l.first, want) && !contains(l.second, want) {
					wrong = append(wrong, describe(want))
				}
			}
		}
		return wrong, of
	}
}

func contains(events []received, want step) bool {
	return slices.ContainsFunc(events, func(r received) bool { return r.step() == want })
}

// bothClients judges the events of each client.
func bothClients(judge func([livingPods]*pod, []received) (wrong []string)) func(*scenario) (wrong []string, of int) {
	return func(l *scenario) (wrong []string, of int) {
		return slices.Concat(judge(l.pods, l.first), judge(l.pods, l.second)), len(l.first) + len(l.second)
	}
}

// outOfOrder: of two steps of a pod of which one was made before the other, the events
// come in that order. The steps of different containers are one after the other too.
func outOfOrder(pods [livingPods]*pod, events []received) (wrong []string) {
	for _, p := range pods {
		last := -1
		for _, e := range events {
			i := slices.Index(p.steps, e.step())
			if i >= 0 && i < last {
				wrong = append(wrong, fmt.Sprintf("%s after %s", describe(p.steps[i]), describe(p.steps[last])))
			}
			last = max(last, i)
		}
	}
	return wrong
}

func repeated(_ [livingPods]*pod, events []received) (wrong []string) {
	seen := make(map[step]bool)
	for _, e := range events {
		if seen[e.step()] {
			wrong = append(wrong, describe(e.step()))
		}
		seen[e.step()] = true
	}
	return wrong
}

func missedByOne(l *scenario) (wrong []string, of int) {
	all := make(map[step]bool)
	for _, e := range slices.Concat(l.first, l.second) {
		all[e.step()] = true
	}
	for step := range all {
		if !contains(l.first, step) || !contains(l.second, step) {
			wrong = append(wrong, describe(step))
		}
	}
	if len(all) == 0 {
		wrong = []string{"there are no events"}
	}
	return wrong, len(all)
}

// eachEvent judges each event of the client that reads.
func eachEvent(judge func(received) (wrong string)) func(*scenario) (wrong []string, of int) {
	return func(l *scenario) (wrong []string, of int) {
		for _, e := range l.first {
			if text := judge(e); text != "" {
				wrong = append(wrong, text)
			}
		}
		return wrong, len(l.first)
	}
}

func incomplete(e received) string {
	sandbox := e.GetPodSandboxStatus()
	if sandbox.GetMetadata() == nil || sandbox.GetId() == "" {
		return describe(e.step()) + " has no sandbox status"
	}
	ids := make(map[string]bool)
	for _, c := range e.GetContainersStatuses() {
		ids[c.GetId()] = true
	}
	if step := e.step(); !step.sandbox && step.kind != deleted && !ids[step.id] {
		return describe(step) + " lacks its own container"
	}
	if ids[""] {
		return describe(e.step()) + " has an empty container status"
	}
	return ""
}

func disagreement(e received) string {
	kind := e.GetContainerEventType()
	if e.step().sandbox {
		sandbox := e.GetPodSandboxStatus() // absent if it is not complete, which is another promise
		ready := sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		if sandbox != nil && (kind == started && !ready || (kind == stopped || kind == deleted) && ready) {
			return fmt.Sprintf("%s with ready %v", describe(e.step()), ready)
		}
		return ""
	}
	want, ok := map[runtimeapi.ContainerEventType]runtimeapi.ContainerState{
		started: runtimeapi.ContainerState_CONTAINER_RUNNING, stopped: runtimeapi.ContainerState_CONTAINER_EXITED,
	}[kind]
	for _, c := range e.GetContainersStatuses() {
		if ok && c.GetId() == e.GetContainerId() && c.GetState() != want {
			return fmt.Sprintf("%s with state %s", describe(e.step()), c.GetState())
		}
	}
	return ""
}

func backInTime(l *scenario) (wrong []string, of int) {
	newest := make(map[*pod]int64)
	for _, e := range l.first {
		if e.GetCreatedAt() < newest[e.pod] || e.GetCreatedAt() <= 0 {
			wrong = append(wrong, describe(e.step()))
		}
		newest[e.pod] = max(newest[e.pod], e.GetCreatedAt())
	}
	return wrong, len(l.first)
}
