//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// containerd marks a container as exited, and only then gathers the statuses for
// the event of it. One that is removed in between is in no event with its exit
// code, and no call returns it any more: the runtime has never told it.

func (a *arrivals) noteEnded(statuses []*runtimeapi.ContainerStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, st := range statuses {
		if st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			a.ended[st.GetId()] = true
		}
	}
}

func (a *arrivals) has(id string, step lab.Step) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.at[id+" "+string(step)]
	return ok
}

// told reports whether an event has carried the final status of a container.
func (a *arrivals) told(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended[id]
}

// forgive fills in the exit codes that the runtime has not told. What it tells
// later than this is found by checkUntold.
func (a *arrivals) forgive(events []pleg.Event, entries []lab.Entry) []pleg.Event {
	return fillUntold(events, entries, a.told)
}

// fillUntold fills in the exit codes that nobody could have told.
func fillUntold(events []pleg.Event, entries []lab.Entry, told func(containerID string) bool) []pleg.Event {
	for i := range events {
		ev := &events[i]
		if ev.Type != pleg.ContainerDied || ev.Sandbox || ev.ExitCode != nil || told(string(ev.ContainerID)) {
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

// awaitRaw returns once the runtime's events have told every step of the ledger.
func (a *arrivals) awaitRaw(ctx context.Context, l *lab.Lab) error {
	var lacks string
	err := eventually(ctx, func() bool {
		lacks = ""
		for _, e := range l.Ledger().All() {
			if e.Step != lab.Created && !a.has(e.ContainerID, e.Step) {
				lacks = describeEntry(e)
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("wait for the runtime's own event of %s: %w", lacks, err)
	}
	return nil
}

// checkUntold demands the exit code of every container whose final status the
// runtime has told, and says how many it has not.
func checkUntold(ctx context.Context, t *testing.T, l *lab.Lab, raw *arrivals, seen *record) {
	t.Helper()
	must(t, raw.awaitRaw(ctx, l))
	ends, untold, without := 0, 0, 0
	pods := make(map[string]bool)
	for _, e := range l.Ledger().All() {
		if e.Step != lab.Died || e.Sandbox {
			continue
		}
		ends++
		if !raw.told(e.ContainerID) {
			untold++
		}
		pods[e.PodUID] = true
	}
	for uid := range pods {
		for _, ev := range seen.events(pleg.PodUID(uid)) {
			if ev.Type != pleg.ContainerDied || ev.Sandbox || ev.ExitCode != nil {
				continue
			}
			without++
			if raw.told(string(ev.ContainerID)) {
				t.Errorf("%s: no exit code, although an event of the runtime carried it", describe(ev))
			}
		}
	}
	t.Logf("of %d ends the runtime told %d with exit code in an event; %d have none here", ends, ends-untold, without)
}
