//go:build linux

package main

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/soak"
)

// Truth implements [soak.Node]. It returns containerd's statuses, which must agree
// with the history.
func (n *node) Truth(ctx context.Context) (soak.Truth, error) {
	truth := make(soak.Truth)
	for _, p := range n.pods {
		pod, err := n.pod(ctx, p)
		if err != nil {
			return nil, err
		}
		truth[pleg.PodUID(p.UID)] = pod
	}
	return truth, n.checkLists(ctx, truth)
}

func (n *node) pod(ctx context.Context, p *lab.Pod) (soak.Pod, error) {
	pod := soak.Pod{Namespace: p.Namespace, Name: p.Name, Containers: make(map[pleg.ContainerID]soak.Container)}
	answer, err := n.lab.Runtime().PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.SandboxID})
	if err != nil {
		return pod, err
	}
	c := soak.Container{Sandbox: true, State: historyStates[n.lab.History().Last(p.SandboxID)], Attempt: p.Attempt}
	if c.State == pleg.StateRunning {
		c.IP = answer.GetStatus().GetNetwork().GetIp()
	}
	if ready := answer.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY; ready != (c.State == pleg.StateRunning) {
		return pod, fmt.Errorf("sandbox %s is ready: %v, the history has %v", p.SandboxID, ready, c.State)
	}
	pod.Containers[pleg.ContainerID(p.SandboxID)] = c
	for _, of := range p.Containers() {
		c, err := n.container(ctx, of)
		if err != nil {
			return pod, err
		}
		pod.Containers[pleg.ContainerID(of.ID)] = c
	}
	return pod, nil
}

func (n *node) container(ctx context.Context, of *lab.Container) (soak.Container, error) {
	answer, err := n.lab.Runtime().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: of.ID})
	if err != nil {
		return soak.Container{}, err
	}
	status := answer.GetStatus()
	c := soak.Container{State: states[status.GetState()], Attempt: of.Attempt}
	if want := historyStates[n.lab.History().Last(of.ID)]; c.State != want {
		return c, fmt.Errorf("container %s is %v, the history has %v", of.ID, c.State, want)
	}
	if c.State == pleg.StateExited {
		c.ExitCode, c.Reason = status.GetExitCode(), status.GetReason()
	}
	return c, nil
}

// checkLists returns an error if containerd lists more than the truth.
func (n *node) checkLists(ctx context.Context, truth soak.Truth) error {
	containers, err := n.lab.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	sandboxes, err := n.lab.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	known := 0
	for _, p := range truth {
		known += len(p.Containers)
	}
	if got := len(containers.GetContainers()) + len(sandboxes.GetItems()); got != known {
		return fmt.Errorf("containerd has %d containers and sandboxes, the history %d", got, known)
	}
	return nil
}

var historyStates = map[lab.Step]pleg.State{
	lab.Created: pleg.StateCreated, lab.Started: pleg.StateRunning, lab.Died: pleg.StateExited,
}

var states = map[runtimeapi.ContainerState]pleg.State{
	runtimeapi.ContainerState_CONTAINER_CREATED: pleg.StateCreated,
	runtimeapi.ContainerState_CONTAINER_RUNNING: pleg.StateRunning,
	runtimeapi.ContainerState_CONTAINER_EXITED:  pleg.StateExited,
}
