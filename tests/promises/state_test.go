package promises_test

import (
	"errors"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

func truth(state pleg.State) promises.Truth {
	return promises.Truth{"p": {Namespace: "n", Containers: map[pleg.ContainerID]promises.Container{"c": {State: state}}}}
}

// After a PodSync the state comes from the cache; if the inspection had failed, it comes from the
// cache at the pod's next event.
func TestStateFollowsPodSyncs(t *testing.T) {
	var status *pleg.PodStatus
	err := errors.New("the inspection failed")
	s := &promises.State{Look: func(pleg.PodUID) (*pleg.PodStatus, error) { return status, err }}
	events := []pleg.Event{event(1, started, "p", "c"), sync(2, "p"), sync(3, "p"), event(4, removed, "p", "c")}
	s.Add(events[0])
	s.Add(events[1])
	if diff := s.Diff(truth(pleg.StateExited)); len(diff) != 1 {
		t.Errorf("differences = %q, want that it has exited", diff)
	}
	status, err = &pleg.PodStatus{UID: "p", Containers: []*pleg.ContainerStatus{{ID: "c", State: pleg.StateExited}}}, nil
	s.Add(events[2])
	if diff := s.Diff(truth(pleg.StateExited)); len(diff) != 0 {
		t.Errorf("differences = %q, want none", diff)
	}
	status = &pleg.PodStatus{UID: "p"}
	s.Add(events[3])
	if diff := s.Diff(promises.Truth{}); len(diff) != 0 {
		t.Errorf("differences = %q, want none", diff)
	}
}

func TestTruthDiffersFromCache(t *testing.T) {
	want := promises.Truth{"p": {Containers: map[pleg.ContainerID]promises.Container{
		"c": {State: pleg.StateExited, Attempt: 1, ExitCode: 3, Reason: "Error"},
		"s": {Sandbox: true, State: pleg.StateRunning, IP: "10.0.0.1"},
	}}}
	known := func() []cache.Entry {
		return []cache.Entry{{UID: "p", Status: &pleg.PodStatus{
			Containers: []*pleg.ContainerStatus{{ID: "c", State: pleg.StateExited, Attempt: 1, ExitCode: 3, Reason: "Error"}},
			Sandboxes:  []*pleg.SandboxStatus{{ID: "s", Ready: true, IPs: []string{"10.0.0.1", "fd00::1"}}},
		}}}
	}
	for name, test := range map[string]struct {
		change func(*cache.Entry)
		lines  int
	}{
		"equal":             {func(*cache.Entry) {}, 0},
		"exit code":         {func(p *cache.Entry) { p.Status.Containers[0].ExitCode = 4 }, 1},
		"reason":            {func(p *cache.Entry) { p.Status.Containers[0].Reason = "" }, 1},
		"address":           {func(p *cache.Entry) { p.Status.Sandboxes[0].IPs = nil }, 1},
		"sandbox":           {func(p *cache.Entry) { p.Status.Sandboxes[0].Ready = false }, 1},
		"container missing": {func(p *cache.Entry) { p.Status.Containers = nil }, 1},
		"another id":        {func(p *cache.Entry) { p.Status.Containers[0].ID = "d" }, 2},
		"error":             {func(p *cache.Entry) { p.Err = errors.New("the inspection failed") }, 1},
		"another pod":       {func(p *cache.Entry) { p.UID = "q" }, 2},
	} {
		pods := known()
		test.change(&pods[0])
		if diff := want.Diff(pods); len(diff) != test.lines {
			t.Errorf("%s: differences = %q, want %d", name, diff, test.lines)
		}
	}
}

// A stream that does not end forgets its events, and still knows which containers its filter wants.
func TestForget(t *testing.T) {
	now := func(c, other pleg.State) promises.Truth {
		return promises.Truth{"p": {Containers: map[pleg.ContainerID]promises.Container{"c": {State: c}, "s": {Sandbox: true, State: other}}}}
	}
	s := promises.Stream{
		Replay: true, Truth: now(pleg.StateRunning, pleg.StateRunning),
		Wants: func(_ promises.Pod, c promises.Container) bool { return !c.Sandbox },
	}
	for _, ev := range append(replay(1), synced(1)) {
		s.Add(ev)
	}
	kit.Must(t, s.Check())
	s.Forget()
	s.Truth = promises.Truth{}
	s.Add(published[3])
	if err := s.Check(); !errors.Is(err, promises.ErrComplete) || !errors.Is(err, promises.ErrState) {
		t.Errorf("Check() = %v, want that the removal is missing", err)
	}
	s.Add(published[5])
	if err := s.Check(); err != nil {
		t.Errorf("Check() = %v after all events that the filter lets through", err)
	}
	s.Add(published[5])
	if err := s.Check(); !errors.Is(err, promises.ErrLife) || !errors.Is(err, promises.ErrUnique) {
		t.Errorf("Check() = %v, want that it was removed twice", err)
	}
}
