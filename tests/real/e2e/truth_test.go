//go:build linux

package e2e_test

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

var stepStates = map[lab.Step]pleg.State{lab.Created: pleg.StateCreated, lab.Started: pleg.StateRunning, lab.Died: pleg.StateExited}

var criStates = map[runtimeapi.ContainerState]pleg.State{
	runtimeapi.ContainerState_CONTAINER_CREATED: pleg.StateCreated,
	runtimeapi.ContainerState_CONTAINER_RUNNING: pleg.StateRunning,
	runtimeapi.ContainerState_CONTAINER_EXITED:  pleg.StateExited,
}

func sandboxState(s runtimeapi.PodSandboxState) pleg.State {
	if s == runtimeapi.PodSandboxState_SANDBOX_READY {
		return pleg.StateRunning
	}
	return pleg.StateExited
}

// truthOf returns the truth according to the history of a lab.
func truthOf(l *lab.Lab) promises.Truth {
	truth := make(promises.Truth)
	for _, e := range l.History().All() {
		uid, id := pleg.PodUID(e.PodUID), pleg.ContainerID(e.ContainerID)
		pod, ok := truth[uid]
		if !ok {
			pod = promises.Pod{Namespace: e.PodNamespace, Name: e.PodName, Containers: make(map[pleg.ContainerID]promises.Container)}
			truth[uid] = pod
		}
		if e.Step == lab.Removed {
			delete(pod.Containers, id)
			continue
		}
		c := promises.Container{Sandbox: e.Sandbox, Name: e.ContainerName, State: stepStates[e.Step], Attempt: e.Attempt}
		switch {
		case e.Sandbox && e.Step == lab.Started:
			c.IP = e.IP
		case !e.Sandbox && e.Step == lab.Died:
			c.ExitCode, c.Reason = e.ExitCode, e.Reason
		}
		pod.Containers[id] = c
	}
	for uid, pod := range truth {
		if len(pod.Containers) == 0 {
			delete(truth, uid)
		}
	}
	return truth
}

// listed returns the states that the runtime lists.
func listed(ctx context.Context, l *lab.Lab) (map[pleg.ContainerID]pleg.State, error) {
	containers, err := l.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	sandboxes, err := l.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	states := make(map[pleg.ContainerID]pleg.State)
	for _, c := range containers.GetContainers() {
		states[pleg.ContainerID(c.GetId())] = criStates[c.GetState()]
	}
	for _, s := range sandboxes.GetItems() {
		states[pleg.ContainerID(s.GetId())] = sandboxState(s.GetState())
	}
	return states, nil
}
