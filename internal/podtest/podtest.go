// Package podtest writes pods, statuses and events as short words, for the
// tests of the stages.
package podtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var states = map[string]pleg.State{
	"unknown": pleg.StateUnknown,
	"created": pleg.StateCreated,
	"running": pleg.StateRunning,
	"exited":  pleg.StateExited,
}

// Pod returns a new pod with what words list, such as "c1=running /s1=exited":
// a container, and after a slash a sandbox. It panics on a word it does not
// know.
func Pod(uid pleg.PodUID, words string) *pleg.Pod {
	p := &pleg.Pod{UID: uid, Name: "name-" + string(uid), Namespace: "ns"}
	for word := range strings.FieldsSeq(words) {
		id, name, _ := strings.Cut(word, "=")
		state, ok := states[name]
		if !ok {
			panic(fmt.Sprintf("podtest: %q: no such state", word))
		}
		if sandbox, ok := strings.CutPrefix(id, "/"); ok {
			p.Sandboxes = append(p.Sandboxes, &pleg.Container{ID: pleg.ContainerID(sandbox), Name: p.Name, State: state})
			continue
		}
		p.Containers = append(p.Containers, &pleg.Container{ID: pleg.ContainerID(id), Name: "of-" + id, State: state})
	}
	return p
}

// Status returns the status of a pod that is as it was listed, with the given
// addresses. What has exited did so with code 3 and the reason Error.
func Status(p *pleg.Pod, ips ...string) *pleg.PodStatus {
	s := &pleg.PodStatus{UID: p.UID, Name: p.Name, Namespace: p.Namespace, IPs: ips}
	for _, c := range p.Containers {
		status := &pleg.ContainerStatus{ID: c.ID, Name: c.Name, Attempt: c.Attempt, State: c.State}
		if c.State == pleg.StateExited {
			status.ExitCode, status.Reason = 3, "Error"
		}
		s.Containers = append(s.Containers, status)
	}
	for _, c := range p.Sandboxes {
		s.Sandboxes = append(s.Sandboxes, &pleg.SandboxStatus{ID: c.ID, Ready: c.State == pleg.StateRunning, IPs: slices.Clone(ips)})
	}
	return s
}

// Words returns events as words, such as "Died(c1) Started(/s1) PodSync": the
// type without "Container", and the id, of a sandbox after a slash.
func Words(events ...pleg.Event) string {
	words := make([]string, len(events))
	for i, ev := range events {
		words[i] = word(ev)
	}
	return strings.Join(words, " ")
}

func word(ev pleg.Event) string {
	if ev.Type == pleg.PodSync {
		return string(ev.Type)
	}
	slash := ""
	if ev.Sandbox {
		slash = "/"
	}
	return fmt.Sprintf("%s(%s%s)", strings.TrimPrefix(string(ev.Type), "Container"), slash, ev.ContainerID)
}
