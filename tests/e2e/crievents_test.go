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
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// arrivals is when a client received the first event of each step.
type arrivals struct {
	mu sync.Mutex
	at map[string]time.Time
	// exited are the containers whose final status came with a CRI event.
	exited map[string]bool
}

func newArrivals() *arrivals {
	return &arrivals{at: make(map[string]time.Time), exited: make(map[string]bool)}
}

func stepKey(id string, step lab.Step) string { return id + " " + string(step) }

func (a *arrivals) add(id string, step lab.Step) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.at[stepKey(id, step)]; !ok {
		a.at[stepKey(id, step)] = now
	}
}

func (a *arrivals) addStatuses(statuses []*runtimeapi.ContainerStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, st := range statuses {
		if st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			a.exited[st.GetId()] = true
		}
	}
}

func (a *arrivals) all() map[string]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.at)
}

// haveExitCode reports whether a CRI event carried the final status of a
// container. containerd marks a container as exited before it gathers the
// statuses for the event. If the container is removed in between, no event and
// no call ever returns its exit code.
func (a *arrivals) haveExitCode(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.exited[id]
}

// receiveCRIEvents receives the CRI events of the runtime until the test ends.
func receiveCRIEvents(ctx context.Context, t *testing.T, l *lab.Lab) *arrivals {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	stream, err := l.Runtime().GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	must(t, err)
	a := newArrivals()
	done := make(chan struct{})
	go func() {
		defer close(done)
		steps := map[runtimeapi.ContainerEventType]lab.Step{
			runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: lab.Started,
			runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: lab.Died,
			runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: lab.Removed,
		}
		for {
			ev, err := stream.Recv()
			if err != nil {
				return
			}
			a.addStatuses(ev.GetContainersStatuses()) // first, because awaitSteps waits for the step
			if step, ok := steps[ev.GetContainerEventType()]; ok {
				a.add(ev.GetContainerId(), step)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return a
}

// receiveEvents receives the events of a pipeline until the test ends.
func receiveEvents(t *testing.T, p *pipeline.Pipeline) *arrivals {
	t.Helper()
	sub, err := p.Subscribe(pipeline.SubscribeOptions{})
	must(t, err)
	a := newArrivals()
	go func() { // until the pipeline ends
		for ev := range sub.Events() {
			if step, ok := strings.CutPrefix(string(ev.Type), "Container"); ok {
				a.add(string(ev.ContainerID), lab.Step(step))
			}
		}
	}()
	return a
}

// awaitSteps returns once every step of the history has arrived.
func (a *arrivals) awaitSteps(ctx context.Context, l *lab.Lab) error {
	var absent string
	err := eventually(ctx, func() bool {
		at := a.all()
		for _, e := range l.History().All() {
			if _, ok := at[stepKey(e.ContainerID, e.Step)]; !ok && e.Step != lab.Created {
				absent = describeEntry(e)
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("wait for the CRI event of %s: %w", absent, err)
	}
	return nil
}

// logDelays logs how much later than the first client another one received each
// step. It returns the number of steps that the other did not receive.
func logDelays(t *testing.T, name string, first, other *arrivals) (absent int) {
	t.Helper()
	var delays []time.Duration
	received := other.all()
	for step, at := range first.all() {
		if then, ok := received[step]; ok {
			delays = append(delays, then.Sub(at))
		} else {
			absent++
		}
	}
	slices.Sort(delays)
	quantile := func(q float64) time.Duration {
		if len(delays) == 0 {
			return 0
		}
		return delays[min(len(delays)-1, int(q*float64(len(delays))))].Round(10 * time.Microsecond)
	}
	t.Logf("%s: %d events, p50 %v, p99 %v, max %v later than the CRI event; %d absent",
		name, len(delays), quantile(0.5), quantile(0.99), quantile(1), absent)
	return absent
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

// checkExitCodes fails the test if an instance reported an end without the exit
// code that a CRI event carried.
func checkExitCodes(ctx context.Context, t *testing.T, l *lab.Lab, in *instance) {
	t.Helper()
	if l.Traits().AllEvents {
		must(t, in.criEvents.awaitSteps(ctx, l))
	}
	ends, announced, without := 0, 0, 0
	pods := make(map[string]bool)
	for _, e := range l.History().All() {
		if e.Step != lab.Died || e.Sandbox {
			continue
		}
		ends++
		if in.criEvents.haveExitCode(e.ContainerID) {
			announced++
		}
		pods[e.PodUID] = true
	}
	for uid := range pods {
		for _, ev := range in.events(pleg.PodUID(uid)) {
			if ev.Type != pleg.ContainerDied || ev.Sandbox || ev.ExitCode != nil {
				continue
			}
			without++
			if in.criEvents.haveExitCode(string(ev.ContainerID)) && !in.wasOvertaken(string(ev.ContainerID)) {
				t.Errorf("%s: no exit code, although a CRI event carried it", describe(ev))
			}
		}
	}
	t.Logf("%d containers ended, CRI events carried %d exit codes, %d events have none", ends, announced, without)
}
