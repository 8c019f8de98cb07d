package cri

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// settledContainer returns the status in last of a container that is listed in the state that it
// had in that status; otherwise nil. Such a status changes only with the state.
func settledContainer(listed *pleg.Container, last *pleg.PodStatus) *pleg.ContainerStatus {
	same := last.Container(listed.ID)
	if same == nil || same.State != listed.State || listed.State == pleg.StateUnknown || mayBeOutOfMemory(same, last.ObservedAt) {
		return nil
	}
	return same
}

// lateReason is how long after the end of a container its reason may change.
const lateReason = time.Second

// mayBeOutOfMemory reports whether the reason of a container that was killed may have
// changed to OOMKilled since: containerd may learn of the end before it learns why
// (containerd#12133).
func mayBeOutOfMemory(st *pleg.ContainerStatus, observed time.Time) bool {
	return st.ExitCode == 137 && st.Reason == "Error" && observed.Sub(st.FinishedAt) < lateReason
}

// settledSandbox returns the status in last of a sandbox that is as ready as it was
// then, and had its addresses if it is ready; otherwise nil. A pod that fails to start may have
// thousands that are not ready (containerd#10865).
func settledSandbox(listed *pleg.Container, last *pleg.PodStatus) *pleg.SandboxStatus {
	if listed.State != pleg.StateRunning && listed.State != pleg.StateExited {
		return nil
	}
	same := last.Sandbox(listed.ID)
	if same == nil || same.Ready != (listed.State == pleg.StateRunning) || same.Ready && len(same.IPs) == 0 && !same.HostNetwork {
		return nil
	}
	return same
}
