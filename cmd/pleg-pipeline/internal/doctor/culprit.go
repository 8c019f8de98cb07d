package doctor

import (
	"cmp"
	"fmt"
	"maps"
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

func culpritOf(c ItemCall) culprit {
	return culprit{c.Pod, c.PodUID, c.Container, c.Method, time.Duration(c.Seconds * float64(time.Second))}
}

// hungPods returns the pods that hang for this examination or for the daemon, the
// longest first. A pod that the daemon will inspect again counts only if it was not
// found to answer.
func (e *examination) hungPods() []culprit {
	byPod := make(map[string]culprit)
	for _, h := range e.report.Hung {
		if c := culpritOf(h); byPod[h.PodUID].age < c.age {
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
		c := culpritOf(f)
		c.age = 0
		byPod[f.PodUID] = c
	}
	return sorted(byPod)
}

func sorted(byPod map[string]culprit) []culprit {
	return slices.SortedFunc(maps.Values(byPod), func(a, b culprit) int {
		return cmp.Or(cmp.Compare(b.age, a.age), cmp.Compare(a.pod, b.pod))
	})
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

func (e *examination) hung(s *signs) {
	culprits := e.hungPods()
	if len(culprits) == 0 {
		return
	}
	first := culprits[0]
	s.add(true, "%s: %s hangs, %s so far%s", names(culprits), first.method, span(first.age.Seconds()), e.others(len(culprits)))
	hung := e.report.Hung
	if len(hung) == 0 {
		return
	}
	var calls []string
	for _, h := range hung[:min(len(hung), top)] {
		calls = append(calls, fmt.Sprintf("%s %s (%s %s)", h.Pod, cmp.Or(h.Container, "sandbox"), h.Method, h.ID))
	}
	if more := len(hung) - len(calls); more > 0 {
		calls = append(calls, fmt.Sprintf("and %d more", more))
	}
	s.add(true, "%d of %d status calls do not return within %v: %s", len(hung), e.report.Counts.Inspected, e.CallTimeout, strings.Join(calls, ", "))
}

// slowContainer finds a single call that takes long although most do not.
func (e *examination) slowContainer(s *signs) {
	if slowest := e.report.Slowest; len(slowest) > 0 && slowest[0].Seconds >= longCall.Seconds() {
		c := culpritOf(slowest[0])
		s.add(false, "%s: %s takes %s%s", c.name(), c.method, seconds(slowest[0].Seconds), e.others(1))
	}
}
