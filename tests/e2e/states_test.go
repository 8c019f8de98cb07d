//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// The functions of this file return the state of each container and sandbox by
// its id, in the words of stateText.

func stateText(sandbox bool, state pleg.State, code int32, reason string) string {
	switch {
	case sandbox && state == pleg.StateRunning:
		return "ready"
	case sandbox:
		return "notready"
	case state == pleg.StateExited:
		return fmt.Sprintf("exited %d %s", code, reason)
	default:
		return state.String()
	}
}

func readyState(ready bool) pleg.State {
	if ready {
		return pleg.StateRunning
	}
	return pleg.StateExited
}

func cacheState(p *pipeline.Pipeline) (map[string]string, error) {
	got := make(map[string]string)
	for _, e := range p.Cache().List() {
		if e.Err != nil {
			return nil, fmt.Errorf("pod %s: %w", e.UID, e.Err)
		}
		for _, c := range e.Status.Containers {
			got[string(c.ID)] = stateText(false, c.State, c.ExitCode, c.Reason)
		}
		for _, s := range e.Status.Sandboxes {
			got[string(s.ID)] = stateText(true, readyState(s.Ready), 0, "")
		}
	}
	return got, nil
}

func historyState(l *lab.Lab) map[string]string {
	want := make(map[string]string)
	for _, e := range l.History().All() {
		switch e.Step {
		case lab.Created:
			want[e.ContainerID] = stateText(e.Sandbox, pleg.StateCreated, 0, "")
		case lab.Started:
			want[e.ContainerID] = stateText(e.Sandbox, pleg.StateRunning, 0, "")
		case lab.Died:
			want[e.ContainerID] = stateText(e.Sandbox, pleg.StateExited, e.ExitCode, e.Reason)
		case lab.Removed:
			delete(want, e.ContainerID)
		}
	}
	return want
}

// runtimeState returns the status of each container and sandbox in the history.
// It does not list, because a list may be too large.
func runtimeState(ctx context.Context, l *lab.Lab) (map[string]string, error) {
	got := make(map[string]string)
	for _, e := range l.History().All() {
		if _, ok := got[e.ContainerID]; ok || l.History().Last(e.ContainerID) == lab.Removed {
			continue
		}
		if e.Sandbox {
			st, err := l.Runtime().PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: e.ContainerID})
			if err != nil {
				return nil, err
			}
			ready := st.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
			got[e.ContainerID] = stateText(true, readyState(ready), 0, "")
			continue
		}
		answer, err := l.Runtime().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: e.ContainerID})
		if err != nil {
			return nil, err
		}
		st := answer.GetStatus()
		state := map[runtimeapi.ContainerState]pleg.State{
			runtimeapi.ContainerState_CONTAINER_CREATED: pleg.StateCreated,
			runtimeapi.ContainerState_CONTAINER_RUNNING: pleg.StateRunning,
			runtimeapi.ContainerState_CONTAINER_EXITED:  pleg.StateExited,
		}[st.GetState()]
		got[e.ContainerID] = stateText(false, state, st.GetExitCode(), st.GetReason())
	}
	return got, nil
}

// listedState returns what the CRI lists contain. They have no exit codes.
func listedState(ctx context.Context, l *lab.Lab) (map[string]string, error) {
	containers, err := l.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	sandboxes, err := l.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	got := make(map[string]string)
	for _, c := range containers.GetContainers() {
		got[c.GetId()] = strings.ToLower(strings.TrimPrefix(c.GetState().String(), "CONTAINER_"))
	}
	for _, s := range sandboxes.GetItems() {
		got[s.GetId()] = strings.ToLower(strings.TrimPrefix(s.GetState().String(), "SANDBOX_"))
	}
	return got, nil
}

// diffLists returns how a state differs from the CRI lists, except for exit codes.
func diffLists(ctx context.Context, l *lab.Lab, name string, state map[string]string) error {
	want, err := listedState(ctx, l)
	if err != nil {
		return err
	}
	got := make(map[string]string)
	for id, text := range state {
		got[id], _, _ = strings.Cut(text, " ")
	}
	return diffStates(name, got, want)
}

// diffStates returns an error with some of the differences.
func diffStates(name string, got, want map[string]string) error {
	if maps.Equal(got, want) {
		return nil
	}
	var lines []string
	ids := maps.Clone(got)
	maps.Copy(ids, want)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if got[id] != want[id] {
			lines = append(lines, fmt.Sprintf("%.12s is %q, want %q", id, got[id], want[id]))
		}
	}
	return fmt.Errorf("%s: %d states differ: %s", name, len(lines), strings.Join(lines[:min(len(lines), 5)], "; "))
}
