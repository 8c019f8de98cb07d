package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// culprit is a pod whose status calls hang or fail.
type culprit struct {
	pod, podUID, container, method string
	age                            time.Duration
}

// name returns the pod and its container.
func (c culprit) name() string {
	switch {
	case c.container != "":
		return fmt.Sprintf("%s (%s)", c.pod, c.container)
	case c.method == "PodSandboxStatus":
		return c.pod + " (sandbox)"
	}
	return c.pod
}

// hungPods returns the pods that hang for this examination or for the daemon, the
// longest first. A pod that the daemon will inspect again counts only if it was not
// found to answer.
func (e *examination) hungPods() []culprit {
	byPod := make(map[string]culprit)
	for _, h := range e.report.Hung {
		c := culprit{h.Pod, h.PodUID, h.Container, h.Method, time.Duration(h.Seconds * float64(time.Second))}
		if have, ok := byPod[h.PodUID]; !ok || have.age < c.age {
			byPod[h.PodUID] = c
		}
	}
	if e.Daemon != nil {
		for _, h := range e.Daemon.Hung {
			have, ok := byPod[h.PodUID]
			if !ok && !h.InFlight && e.answered() {
				continue
			}
			if !ok {
				have = culprit{h.Pod, h.PodUID, h.Container, cmp.Or(h.Call, "its inspection"), 0}
			}
			have.age = max(have.age, time.Duration(h.Seconds*float64(time.Second)))
			byPod[h.PodUID] = have
		}
	}
	return sorted(byPod)
}

// failedPods returns the pods with a status call that failed.
func (e *examination) failedPods() []culprit {
	byPod := make(map[string]culprit)
	for _, f := range e.report.Failed {
		byPod[f.PodUID] = culprit{f.Pod, f.PodUID, f.Container, f.Method, 0}
	}
	return sorted(byPod)
}

func sorted(byPod map[string]culprit) []culprit {
	all := make([]culprit, 0, len(byPod))
	for _, c := range byPod {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b culprit) int { return cmp.Or(cmp.Compare(b.age, a.age), cmp.Compare(a.pod, b.pod)) })
	return all
}

// answered reports whether the status of every pod was requested in time.
func (e *examination) answered() bool {
	c := e.report.Counts
	return e.report.Runtime != "" && c.Inspected >= c.Sandboxes+c.Containers
}

// names returns the first culprit and the number of the others.
func names(culprits []culprit) string {
	switch more := len(culprits) - 1; more {
	case 0:
		return culprits[0].name()
	case 1:
		return culprits[0].name() + " and 1 more pod"
	default:
		return fmt.Sprintf("%s and %d more pods", culprits[0].name(), more)
	}
}

// others says what the pods do that are not among n culprits.
func (e *examination) others(n int) string {
	pods := e.report.Counts.Pods
	if e.Daemon != nil {
		pods = max(pods, e.Daemon.Pods)
	}
	switch {
	case pods <= n:
		return ""
	case pods == n+1:
		return "; the other pod answers"
	case e.report.Runtime != "" && !e.answered():
		return fmt.Sprintf("; %d other pods, not all were asked in time", pods-n)
	}
	return fmt.Sprintf("; the other %d pods answer", pods-n)
}

func (e *examination) hung() *Finding {
	culprits := e.hungPods()
	if len(culprits) == 0 {
		return nil
	}
	first := culprits[0]
	var evidence []string
	for _, h := range e.report.Hung[:min(len(e.report.Hung), top)] {
		evidence = append(evidence, fmt.Sprintf("%s %s (%s %s)", h.Pod, cmp.Or(h.Container, "sandbox"), h.Method, h.ID))
	}
	if more := len(e.report.Hung) - len(evidence); more > 0 {
		evidence = append(evidence, fmt.Sprintf("and %d more", more))
	}
	text := ""
	if len(evidence) > 0 {
		text = fmt.Sprintf("%d of %d status calls do not return within %v: %s", len(e.report.Hung), e.report.Counts.Inspected, e.CallTimeout, strings.Join(evidence, ", "))
	}
	return newFinding(HungContainer, Problem,
		fmt.Sprintf("%s: %s hangs, %s so far%s", names(culprits), first.method, span(first.age.Seconds()), e.others(len(culprits))), text,
		"look for processes of the pod in state D (ps -eo pid,stat,wchan,cmd), a network filesystem that does not answer, or a shim that hangs; as the last resort kill the pod's shim. A kubelet waits for this pod at each relist")
}

// failing finds calls that return an error.
func (e *examination) failing() *Finding {
	var evidence []string
	for _, c := range e.calls.summary() {
		if c.Failed == 0 || c.Method == "ImageFsInfo" || e.portioned(c.Method) {
			continue
		}
		evidence = append(evidence, fmt.Sprintf("%s fails: %s", c.Method, c.Error))
	}
	culprits := e.failedPods()
	if len(evidence) == 0 {
		return nil
	}
	summary := evidence[0]
	if len(culprits) > 0 && len(evidence) == 1 {
		summary = fmt.Sprintf("%s: %s fails: %s%s", names(culprits), culprits[0].method, e.report.Failed[0].Error, e.others(len(culprits)))
	}
	return newFinding(RuntimeFails, Problem, summary, strings.Join(evidence, "; "),
		"read the runtime's log at this time (journalctl -u containerd, or -u crio); if it names the pod, remove that pod; otherwise "+restart)
}

// portioned reports whether the list that fails is too large, which is a cause of its own.
func (e *examination) portioned(method string) bool {
	return slices.ContainsFunc(e.report.Lists, func(l ListSize) bool { return l.Method == method && l.Portioned })
}

// slowContainer finds single calls that take long although most do not.
func (e *examination) slowContainer() *Finding {
	slowest := e.report.Slowest
	if len(slowest) == 0 || slowest[0].Seconds < longCall.Seconds() {
		return nil
	}
	s := slowest[0]
	c := culprit{s.Pod, s.PodUID, s.Container, s.Method, 0}
	return newFinding(SlowContainer, Warning, fmt.Sprintf("%s: %s takes %s%s", c.name(), s.Method, seconds(s.Seconds), e.others(1)), "",
		"look at the processes and volumes of this pod; a kubelet waits for it at each relist that shows a change of the pod")
}
