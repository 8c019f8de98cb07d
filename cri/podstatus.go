package cri

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// podCalls is the number of calls at once for one pod: most pods need two, and containerd on
// 2 cores reaches its maximum throughput with 4 in all.
const podCalls = 2

// PodStatus fetches the status of the sandboxes and containers of pod, two at a time. It leaves out
// containers and sandboxes that the runtime no longer knows. It leaves out ObservedAt, the time of
// the caller's list.
//
// Statuses that cannot have changed (ADR 11) are taken from last, the status of an earlier call,
// unless that is nil or from before the client reconnected. Statuses of containers that a sandbox
// status carries, as CRI-O's does, are not asked for.
//
// It blocks until all calls have answered, one has failed, or ctx has ended. The error is a
// [pleg.CallError] with the call, and wraps the grpc status.
func (c *Client) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	on := c.observed.last.Load()
	if on == c.observed.first || last != nil && last.ObservedAt.Before(on.made) {
		last = nil
	}
	q := newQuery(c, on, pod, last)
	if !on.uncarried.Load() { // the answers may contain the statuses of containers to ask for
		if err := q.fetch(ctx, q.openSandboxes, nil); err != nil {
			return nil, err
		}
		q.openSandboxes = nil
	}
	if err := q.fetch(ctx, q.openSandboxes, q.openContainers); err != nil {
		return nil, err
	}
	return q.status(), nil
}

// query is one call of PodStatus. The statuses are at the indexes of the listed containers.
type query struct {
	client     *Client
	on         *connection
	pod        *pleg.Pod
	containers []*pleg.ContainerStatus
	sandboxes  []*pleg.SandboxStatus
	// openContainers and openSandboxes are the indexes of the items to ask for.
	openContainers, openSandboxes []int
}

func newQuery(c *Client, on *connection, pod *pleg.Pod, last *pleg.PodStatus) *query {
	q := &query{
		client: c, on: on, pod: pod,
		containers: make([]*pleg.ContainerStatus, len(pod.Containers)),
		sandboxes:  make([]*pleg.SandboxStatus, len(pod.Sandboxes)),
	}
	for i, listed := range pod.Containers {
		if q.containers[i] = settledContainer(listed, last); q.containers[i] == nil {
			q.openContainers = append(q.openContainers, i)
		}
	}
	for i, listed := range pod.Sandboxes {
		q.sandboxes[i] = settledSandbox(listed, last)
		hasOpen := func(c int) bool { return pod.Containers[c].SandboxID == listed.ID }
		if q.sandboxes[i] == nil || !on.uncarried.Load() && slices.ContainsFunc(q.openContainers, hasOpen) {
			q.openSandboxes = append(q.openSandboxes, i)
		}
	}
	return q
}

// fetch asks for some sandboxes and containers at the same time. Then it uses the statuses that the
// answers of the sandboxes carry.
func (q *query) fetch(ctx context.Context, sandboxes, containers []int) error {
	carried := make([][]*runtimeapi.ContainerStatus, len(sandboxes))
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(podCalls)
	for _, i := range containers { // first, since they take longer
		listed := q.pod.Containers[i]
		calls.Go(func() (err error) {
			q.containers[i], err = q.client.containerStatus(ctx, q.pod.UID, listed)
			return err
		})
	}
	for n, i := range sandboxes {
		listed := q.pod.Sandboxes[i]
		calls.Go(func() (err error) {
			q.sandboxes[i], carried[n], err = q.client.sandboxStatus(ctx, q.on, q.pod.UID, listed)
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		return err
	}
	q.use(slices.Concat(carried...))
	return nil
}

// use takes the statuses of open containers from the statuses that sandboxes carried. A container
// with a malformed status, or with two of them, stays open.
func (q *query) use(carried []*runtimeapi.ContainerStatus) {
	byID := make(map[string]*runtimeapi.ContainerStatus, len(carried))
	for _, st := range carried {
		id := st.GetId()
		if _, twice := byID[id]; twice {
			st = nil
		}
		byID[id] = st
	}
	q.openContainers = slices.DeleteFunc(q.openContainers, func(i int) bool {
		listed := q.pod.Containers[i]
		st := byID[string(listed.ID)]
		if checkStatus(nil, st, runtimeapi.ContainerState_name, listed) != nil {
			return false
		}
		q.containers[i] = newContainerStatus(st, listed)
		return true
	})
}

func (q *query) status() *pleg.PodStatus {
	st := &pleg.PodStatus{
		UID: q.pod.UID, Name: q.pod.Name, Namespace: q.pod.Namespace,
		Containers: slices.DeleteFunc(q.containers, func(c *pleg.ContainerStatus) bool { return c == nil }),
		Sandboxes:  slices.DeleteFunc(q.sandboxes, func(s *pleg.SandboxStatus) bool { return s == nil }),
	}
	st.IPs = podIPs(st.Sandboxes)
	return st
}

// settledContainer returns the status of a container in last, if it is listed in the same state;
// otherwise nil. Such a status changes only with the state.
func settledContainer(listed *pleg.Container, last *pleg.PodStatus) *pleg.ContainerStatus {
	same := last.Container(listed.ID)
	if same == nil || same.State != listed.State || listed.State == pleg.StateUnknown || mayBeOutOfMemory(same, last.ObservedAt) {
		return nil
	}
	return same
}

// mayBeOutOfMemory reports whether the reason of a container that was killed may have changed to
// OOMKilled since: containerd may learn of the end shortly before it learns why (containerd#12133).
func mayBeOutOfMemory(st *pleg.ContainerStatus, observed time.Time) bool {
	return st.ExitCode == 137 && st.Reason == "Error" && observed.Sub(st.FinishedAt) < time.Second
}

// settledSandbox is settledContainer for a sandbox. A ready sandbox is settled once its addresses are
// known. A pod that fails to start may contain thousands of sandboxes that are not ready
// (containerd#10865).
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
