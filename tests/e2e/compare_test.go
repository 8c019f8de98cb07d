//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// compare returns how the events of a pod differ from the entries of its
// history, or "". If incomplete, the events so far are correct.
func compare(events []pleg.Event, entries []lab.Entry) (diff string, incomplete bool) {
	got, want := make(map[string][]string), make(map[string][]string)
	for _, ev := range events {
		got[string(ev.ContainerID)] = append(got[string(ev.ContainerID)], describe(ev))
	}
	for _, e := range entries {
		if e.Step != lab.Created { // there is no event for it
			want[e.ContainerID] = append(want[e.ContainerID], describeEntry(e))
		}
	}
	incomplete = true
	var lines []string
	ids := maps.Clone(got)
	maps.Copy(ids, want)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		g, w := got[id], want[id]
		if slices.Equal(g, w) {
			continue
		}
		lines = append(lines, fmt.Sprintf("\n  %.12s: got %q\n   %9s want %q", id, g, "", w))
		if len(g) >= len(w) || !slices.Equal(g, w[:len(g)]) {
			incomplete = false
		}
	}
	return strings.Join(lines, ""), incomplete
}

func describe(ev pleg.Event) string {
	s := fmt.Sprintf("%s %s/%s %s#%d", ev.Type, ev.PodNamespace, ev.PodName, ev.ContainerName, ev.Attempt)
	if ev.Sandbox {
		s += " sandbox"
	}
	if ev.ExitCode != nil {
		s += fmt.Sprintf(" exit %d %s", *ev.ExitCode, ev.Reason)
	}
	return s
}

// describeEntry describes the event that an entry must cause.
func describeEntry(e lab.Entry) string {
	ev := pleg.Event{
		Type: pleg.EventType("Container" + e.Step), PodNamespace: e.PodNamespace, PodName: e.PodName,
		ContainerName: e.ContainerName, Attempt: e.Attempt, Sandbox: e.Sandbox, Reason: e.Reason,
	}
	if e.Sandbox {
		ev.ContainerName = e.PodName // a sandbox has no other name
	} else if e.Step == lab.Died {
		ev.ExitCode = &e.ExitCode
	}
	return describe(ev)
}

// fillExitCodes sets the exit codes of those containers whose exit code could not
// be known. What the runtime reports later is found by checkExitCodes.
func fillExitCodes(events []pleg.Event, entries []lab.Entry, unknown func(containerID string) bool) []pleg.Event {
	for i := range events {
		ev := &events[i]
		if ev.Type != pleg.ContainerDied || ev.Sandbox || ev.ExitCode != nil || !unknown(string(ev.ContainerID)) {
			continue
		}
		for _, e := range entries {
			if e.Step == lab.Died && e.ContainerID == string(ev.ContainerID) {
				ev.ExitCode, ev.Reason = &e.ExitCode, e.Reason
			}
		}
	}
	return events
}

// mayLackCode reports whether the event of the end of a container may have no exit code.
func (in *instance) mayLackCode(id string) bool {
	return in.criEvents != nil && (!in.criEvents.haveExitCode(id) || in.wasOvertaken(id))
}

// wasOvertaken reports whether a list may have shown the end of a container before its CRI
// events came, which a busy machine delays: few may, and only where the test allows it.
func (in *instance) wasOvertaken(id string) bool {
	if !in.overtaken[id] && len(in.overtaken) < in.mayOvertake {
		if in.overtaken == nil {
			in.overtaken = make(map[string]bool)
		}
		in.overtaken[id] = true
	}
	return in.overtaken[id]
}

// endedUnseen reports whether the end of a container was reported and its start was not,
// because a list overtook both.
func (in *instance) endedUnseen(id string, events []pleg.Event) bool {
	reported := func(t pleg.EventType) bool {
		return slices.ContainsFunc(events, func(ev pleg.Event) bool { return ev.Type == t && string(ev.ContainerID) == id })
	}
	return in.mayOvertake > 0 && reported(pleg.ContainerDied) && !reported(pleg.ContainerStarted) && in.wasOvertaken(id)
}

// criEvents is what one client received of the CRI events of the runtime.
type criEvents struct {
	mu    sync.Mutex
	steps map[string]bool // by stepKey
	// exited are the containers whose final status came with a CRI event. containerd
	// marks a container as exited before it gathers the statuses for the event. If the
	// container is removed in between, no event and no call ever returns its exit code.
	exited map[string]bool
}

var criSteps = map[runtimeapi.ContainerEventType]lab.Step{
	runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: lab.Started,
	runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: lab.Died,
	runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: lab.Removed,
}

// receiveCRIEvents receives the CRI events of the runtime until the test ends.
func (f *fixture) receiveCRIEvents(ctx context.Context) *criEvents {
	f.t.Helper()
	c := &criEvents{steps: make(map[string]bool), exited: make(map[string]bool)}
	opened := make(chan error)
	f.background(ctx, func(ctx context.Context) {
		stream, err := f.lab.Runtime().GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		opened <- err
		for err == nil {
			var ev *runtimeapi.ContainerEventResponse
			if ev, err = stream.Recv(); err == nil {
				c.add(ev)
			}
		}
	})
	must(f.t, <-opened)
	return c
}

func (c *criEvents) add(ev *runtimeapi.ContainerEventResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range ev.GetContainersStatuses() {
		if st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			c.exited[st.GetId()] = true
		}
	}
	c.steps[stepKey(ev.GetContainerId(), criSteps[ev.GetContainerEventType()])] = true
}

func (c *criEvents) haveExitCode(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exited[id]
}

// awaitSteps returns once every step of the history has been announced.
func (c *criEvents) awaitSteps(ctx context.Context, l *lab.Lab) error {
	return await(ctx, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, e := range l.History().All() {
			if e.Step != lab.Created && !c.steps[stepKey(e.ContainerID, e.Step)] {
				return fmt.Errorf("no CRI event of %s", describeEntry(e))
			}
		}
		return nil
	})
}

// checkExitCodes fails the test if an instance reported an end without the exit
// code that a CRI event carried.
func checkExitCodes(ctx context.Context, t *testing.T, l *lab.Lab, in *instance) {
	t.Helper()
	if l.Traits().AllEvents {
		must(t, in.criEvents.awaitSteps(ctx, l))
	}
	ends, announced, without := 0, 0, 0
	for _, e := range l.History().All() {
		if e.Step != lab.Died || e.Sandbox {
			continue
		}
		ends++
		if in.criEvents.haveExitCode(e.ContainerID) {
			announced++
		}
		for _, ev := range in.events(pleg.PodUID(e.PodUID)) {
			if ev.Type != pleg.ContainerDied || string(ev.ContainerID) != e.ContainerID || ev.ExitCode != nil {
				continue
			}
			without++
			if in.criEvents.haveExitCode(e.ContainerID) && !in.wasOvertaken(e.ContainerID) {
				t.Errorf("%s: no exit code, although a CRI event carried it", describe(ev))
			}
		}
	}
	t.Logf("%d containers ended, CRI events carried %d exit codes, %d events have none", ends, announced, without)
}
