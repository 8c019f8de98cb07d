//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// diffSteps returns how the events differ from the entries of a history: each entry must match an
// event, and each event an entry with the same fields. Lists show only the last step of each
// container during a pause of the instance.
func (in *instance) diffSteps(entries []lab.Entry) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	known := make(map[string]bool)
	var lacking []string
	for _, e := range entries {
		key := stepKey(e.ContainerID, e.Step)
		ev, reported := in.steps[key]
		known[key] = true
		switch {
		case e.Step == lab.Created: // there is no event for it
			continue
		case !reported && in.paused.covers(e):
			continue
		case !reported:
			lacking = append(lacking, "no event of "+describeEntry(e))
			continue
		case e.Step == lab.Died && !e.Sandbox && ev.ExitCode == nil:
			if !in.paused.covers(e) && (in.criEvents == nil || in.criEvents.haveExitCode(e.ContainerID)) {
				lacking = append(lacking, "no exit code of "+describeEntry(e))
			}
			ev.ExitCode, ev.Reason = &e.ExitCode, e.Reason
		}
		if got, want := describe(ev.Event), describeEntry(e); got != want {
			return fmt.Errorf("%s: the event of %.12s is %s, want %s", in.name, e.ContainerID, got, want)
		}
	}
	for key, ev := range in.steps {
		if !known[key] {
			return fmt.Errorf("%s: %s did not happen", in.name, describe(ev.Event))
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("%s: %d of %d are missing: %s", in.name, len(lacking), len(entries), strings.Join(lacking[:min(len(lacking), 5)], "; "))
	}
	return nil
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
		ev.ContainerName = e.PodName // only the pod names a sandbox
	} else if e.Step == lab.Died {
		ev.ExitCode = &e.ExitCode
	}
	return describe(ev)
}

// criEvents are the CRI events that one client received from the runtime.
type criEvents struct {
	mu    sync.Mutex
	steps map[string]time.Time // the time at which each step first came, by stepKey
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
	c := &criEvents{steps: make(map[string]time.Time), exited: make(map[string]bool)}
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
	key := stepKey(ev.GetContainerId(), criSteps[ev.GetContainerEventType()])
	if c.steps[key].IsZero() {
		c.steps[key] = time.Now()
	}
}

// announced returns when the event of a step came; the zero time if none came.
func (c *criEvents) announced(id string, step lab.Step) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps[stepKey(id, step)]
}

func (c *criEvents) haveExitCode(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exited[id]
}

// awaitSteps returns once every step of the history has been announced.
func (c *criEvents) awaitSteps(ctx context.Context, l *lab.Lab) error {
	return await(ctx, func() error {
		for _, e := range l.History().All() {
			if e.Step != lab.Created && c.announced(e.ContainerID, e.Step).IsZero() {
				return fmt.Errorf("no CRI event of %s", describeEntry(e))
			}
		}
		return nil
	})
}
