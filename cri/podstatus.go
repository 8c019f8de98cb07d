package cri

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// podCalls is the number of calls at once for one pod. With the default number of
// inspectors, 16 calls are in flight at most: more only increase their latency (containerd
// on 2 cores reaches its maximum throughput with 4).
const podCalls = 2

// PodStatus fetches the status of the sandboxes and containers of pod, two at a time. A
// sandbox or container that the runtime no longer knows is left out. The IPs are those of
// the newest ready sandbox. ObservedAt is left to the caller, who knows when the pod was
// listed.
//
// Without last it asks for everything. With last it takes from there what cannot
// have changed: a container that is listed as exited and had exited (unless it was
// killed just before, so that its reason may have become OOMKilled), and a sandbox
// that is listed as ready, was ready, and had its addresses, or that is not ready and
// was not. If the runtime's sandbox statuses carry those of the containers, these are
// used, and the containers are not asked.
//
// It blocks until all calls have answered, one has failed, or ctx has ended; then
// the error names the call and the id and wraps the grpc status.
func (c *Client) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	q := newQuery(c, pod, last)
	if first := q.sandboxesFirst(); len(first) > 0 {
		if err := q.fetch(ctx, first, nil); err != nil {
			return nil, err
		}
		q.openSandboxes = slices.DeleteFunc(q.openSandboxes, func(i int) bool { return slices.Contains(first, i) })
	}
	if err := q.fetch(ctx, q.openSandboxes, q.openContainers); err != nil {
		return nil, err
	}
	return q.status(), nil
}

// query is one call of PodStatus. The statuses have the indexes of what is listed in pod.
type query struct {
	client     *Client
	pod        *pleg.Pod
	containers []*pleg.ContainerStatus
	sandboxes  []*pleg.SandboxStatus
	// openContainers and openSandboxes are the indexes of those to ask for.
	openContainers, openSandboxes []int
}

func newQuery(c *Client, pod *pleg.Pod, last *pleg.PodStatus) *query {
	q := &query{
		client: c, pod: pod,
		containers: make([]*pleg.ContainerStatus, len(pod.Containers)),
		sandboxes:  make([]*pleg.SandboxStatus, len(pod.Sandboxes)),
	}
	for i, listed := range pod.Containers {
		if q.containers[i] = finalStatus(listed, last); q.containers[i] == nil {
			q.openContainers = append(q.openContainers, i)
		}
	}
	for i, listed := range pod.Sandboxes {
		if q.sandboxes[i] = settledSandbox(listed, last); q.sandboxes[i] == nil {
			q.openSandboxes = append(q.openSandboxes, i)
		}
	}
	return q
}

// finalStatus returns the status in last of a container that had exited by then, or
// nil. Such a status does not change.
func finalStatus(listed *pleg.Container, last *pleg.PodStatus) *pleg.ContainerStatus {
	if listed.State != pleg.StateExited {
		return nil
	}
	final := last.Container(listed.ID)
	if final == nil || final.State != pleg.StateExited || mayBeOutOfMemory(final, last.ObservedAt) {
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

// settledSandbox returns the status in last of a sandbox that is as ready as it was then, or
// nil. One that is ready must have had its addresses: no runtime changes those of a sandbox that
// stays ready. A pod that fails to start may have thousands that are not (containerd#10865).
func settledSandbox(listed *pleg.Container, last *pleg.PodStatus) *pleg.SandboxStatus {
	if last == nil || listed.State != pleg.StateRunning && listed.State != pleg.StateExited {
		return nil
	}
	same := last.Sandbox(listed.ID)
	if same == nil || same.Ready != (listed.State == pleg.StateRunning) || same.Ready && len(same.IPs) == 0 && !same.HostNetwork {
		return nil
	}
	return same
}

// sandboxesFirst returns the sandboxes to ask before the containers, because their
// answers may carry the statuses of two or more containers, or of one beside their
// own. It returns none if everything may be asked at once.
func (q *query) sandboxesFirst() (first []int) {
	if q.client.uncarried.Load() {
		return nil
	}
	open := make(map[pleg.ContainerID]int)
	for _, i := range q.openContainers {
		open[q.pod.Containers[i].SandboxID]++
	}
	for i, listed := range q.pod.Sandboxes {
		if n := open[listed.ID]; n > 0 && q.sandboxes[i] == nil || n > 1 {
			first = append(first, i)
		}
	}
	return first
}

// fetch asks for some sandboxes and containers at the same time, and then uses what the
// answers of the sandboxes carry.
func (q *query) fetch(ctx context.Context, sandboxes, containers []int) error {
	carried := make([][]*runtimeapi.ContainerStatus, len(sandboxes))
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(podCalls)
	for _, i := range containers { // first, since they take longer
		listed := q.pod.Containers[i]
		calls.Go(func() error {
			st, err := q.client.containerStatus(ctx, q.pod.UID, listed)
			if err != nil {
				return &pleg.CallError{Call: containerCall(q.pod.UID, listed), Err: err}
			}
			q.containers[i] = st
			return nil
		})
	}
	for n, i := range sandboxes {
		listed := q.pod.Sandboxes[i]
		calls.Go(func() error {
			st, statuses, err := q.client.sandboxStatus(ctx, q.pod.UID, listed)
			if err != nil {
				return &pleg.CallError{Call: sandboxCall(q.pod.UID, listed), Err: err}
			}
			q.sandboxes[i], carried[n] = st, statuses
			return nil
		})
	}
	if err := calls.Wait(); err != nil {
		return err
	}
	q.use(slices.Concat(carried...))
	return nil
}

// use takes the statuses of open containers from those that sandboxes carried. A container
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
		Containers: existing(q.containers), Sandboxes: existing(q.sandboxes),
	}
	st.IPs = podIPs(st.Sandboxes)
	return st
}

// existing returns the statuses that are not nil; nil if there are none.
func existing[S any](statuses []*S) []*S {
	var exist []*S
	for _, st := range statuses {
		if st != nil {
			exist = append(exist, st)
		}
	}
	return exist
}
