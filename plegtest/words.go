package plegtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var states = map[string]pleg.State{
	"unknown": pleg.StateUnknown,
	"created": pleg.StateCreated,
	"running": pleg.StateRunning,
	"exited":  pleg.StateExited,
}

// exit is the exit code and reason of a container. A pod keeps the exits of its words in Native.
type exit struct {
	code   int32
	reason string
}

type exits map[pleg.ContainerID]exit

// Pod returns a new pod with the containers and sandboxes that words list, such
// as "c1=running c2=exited:137:OOMKilled /s1=exited": an id and a state, with a slash before the
// id of a sandbox. The states are created, running, exited and unknown; the exit code and the
// reason of an exited container may follow, otherwise [Status] gives it 3 and "Error". The
// containers belong to the first sandbox. Pod panics on anything else.
//
// The pod's name is "name-" and the UID, its namespace "ns"; a UID such as "web/a" gives the
// namespace "web" and the label pod=a. A container's name is "of-" and its id, a sandbox's is the
// pod's. All else is zero: a test sets other fields before [Runtime.SetPod], and fields that only a
// status contains, such as images, with [Runtime.SetDetails].
func Pod(uid pleg.PodUID, words string) *pleg.Pod {
	p := &pleg.Pod{UID: uid, Name: "name-" + string(uid), Namespace: "ns"}
	if namespace, name, ok := strings.Cut(string(uid), "/"); ok {
		p.Namespace, p.Labels = namespace, map[string]string{"pod": name}
	}
	for word := range strings.FieldsSeq(words) {
		id, name, _ := strings.Cut(word, "=")
		name, ended, exited := strings.Cut(name, ":")
		state, ok := states[name]
		if !ok || exited && (state != pleg.StateExited || strings.HasPrefix(id, "/")) {
			panic(fmt.Sprintf("plegtest: no such state: %q", word))
		}
		if exited {
			if p.Native == nil {
				p.Native = exits{}
			}
			p.Native.(exits)[pleg.ContainerID(id)] = parseExit(ended)
		}
		if sandbox, ok := strings.CutPrefix(id, "/"); ok {
			p.Sandboxes = append(p.Sandboxes, &pleg.Container{ID: pleg.ContainerID(sandbox), Name: p.Name, State: state})
			continue
		}
		p.Containers = append(p.Containers, &pleg.Container{ID: pleg.ContainerID(id), Name: "of-" + id, State: state})
	}
	for _, c := range p.Containers {
		if len(p.Sandboxes) > 0 {
			c.SandboxID = p.Sandboxes[0].ID
		}
	}
	return p
}

// parseExit reads an exit code and a reason, such as 137:OOMKilled.
func parseExit(text string) exit {
	number, reason, _ := strings.Cut(text, ":")
	code, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		panic(fmt.Sprintf("plegtest: no exit code: %q", text))
	}
	if reason == "" {
		reason = "Error"
		if code == 0 {
			reason = "Completed"
		}
	}
	return exit{int32(code), reason}
}

// Status returns the status of a pod in the states that its list shows, with the
// given addresses and the times of their creation. Exited containers get the exit code and the
// reason that their words gave to [Pod], otherwise 3 and "Error". Sandboxes get the addresses and
// the pod's labels.
func Status(p *pleg.Pod, ips ...string) *pleg.PodStatus {
	s := &pleg.PodStatus{UID: p.UID, Name: p.Name, Namespace: p.Namespace, IPs: ips}
	ends, _ := p.Native.(exits)
	for _, c := range p.Containers {
		status := &pleg.ContainerStatus{ID: c.ID, Name: c.Name, Attempt: c.Attempt, State: c.State, CreatedAt: c.CreatedAt}
		if c.State == pleg.StateExited {
			status.ExitCode, status.Reason = 3, "Error"
			if ended, ok := ends[c.ID]; ok {
				status.ExitCode, status.Reason = ended.code, ended.reason
			}
		}
		s.Containers = append(s.Containers, status)
	}
	for _, c := range p.Sandboxes {
		s.Sandboxes = append(s.Sandboxes, &pleg.SandboxStatus{ID: c.ID, Attempt: c.Attempt, Ready: c.State == pleg.StateRunning, CreatedAt: c.CreatedAt, IPs: slices.Clone(ips), Labels: p.Labels})
	}
	return s
}

// Words returns events in short, such as "Died(c1) Started(/s1) PodSync": the type without
// "Container" and the id, with a slash before the id of a sandbox.
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
