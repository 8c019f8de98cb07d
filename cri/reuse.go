package cri

import (
	"context"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// finalStatus returns the status in last of a container that had exited by then, or
// nil. Such a status does not change.
func finalStatus(listed *pleg.Container, last *pleg.PodStatus) *pleg.ContainerStatus {
	final := last.Container(listed.ID)
	if listed.State != pleg.StateExited || final == nil || final.State != pleg.StateExited || mayBeOutOfMemory(final, last.ObservedAt) {
		return nil
	}
	return final
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

// keepAddresses are the names of the runtimes that keep the addresses of a sandbox that stays
// ready, as ADR 11 found; simruntime is our own.
var keepAddresses = map[string]bool{"containerd": true, "cri-o": true, "simruntime": true}

// keepsAddresses reports whether the runtime is in keepAddresses. It asks once for each connection,
// or once for each inspection that begins meanwhile. A runtime that does not say its name within
// Options.ConnectTimeout is not.
func (c *Client) keepsAddresses(ctx context.Context, on *connection) bool {
	if keeps := on.keepsAddresses.Load(); keeps != nil {
		return *keeps
	}
	version, err := c.Check(ctx)
	if ctx.Err() != nil {
		return false
	}
	keeps := err == nil && keepAddresses[version.RuntimeName]
	on.keepsAddresses.Store(&keeps)
	return keeps
}
