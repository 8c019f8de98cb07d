package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// podShare is the part of Options.MaxStatusCalls that one pod may use.
const podShare = 4

// PodStatus fetches the status of each sandbox and container of pod, several at
// once. A sandbox or container that the runtime no longer knows is left out. A
// container that is listed as exited and has exited in last is taken from last. The
// IPs are those of the newest ready sandbox. ObservedAt is left to the caller, who
// knows when the pod was listed.
//
// It blocks until all calls have answered, one has failed, or ctx has ended; then
// the error names the call and the id and wraps the grpc status. Concurrent calls
// share Options.MaxStatusCalls.
func (c *Client) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	containers := make([]*pleg.ContainerStatus, len(pod.Containers))
	sandboxes := make([]*pleg.SandboxStatus, len(pod.Sandboxes))
	calls, callCtx := errgroup.WithContext(ctx)
	calls.SetLimit(max(1, c.opts.MaxStatusCalls/podShare))
	for i, listed := range pod.Containers { // first, since they take longer
		if containers[i] = finalStatus(listed, last); containers[i] != nil {
			continue
		}
		calls.Go(func() (err error) {
			if containers[i], err = c.containerStatus(callCtx, listed); err != nil {
				return fmt.Errorf("container_status %s: %w", listed.ID, err)
			}
			return nil
		})
	}
	for i, listed := range pod.Sandboxes {
		calls.Go(func() (err error) {
			if sandboxes[i], err = c.sandboxStatus(callCtx, listed); err != nil {
				return fmt.Errorf("podsandbox_status %s: %w", listed.ID, err)
			}
			return nil
		})
	}
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	st := &pleg.PodStatus{
		UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace,
		Containers: present(containers), Sandboxes: present(sandboxes),
	}
	st.IPs = podIPs(st.Sandboxes)
	return st, nil
}

// present returns the statuses that are not nil; nil if there are none.
func present[T any](statuses []*T) []*T {
	statuses = slices.DeleteFunc(statuses, func(s *T) bool { return s == nil })
	if len(statuses) == 0 {
		return nil
	}
	return statuses
}

// finalStatus returns the status in last of a container that had exited by then, or
// nil. Such a status does not change.
func finalStatus(listed *pleg.Container, last *pleg.PodStatus) *pleg.ContainerStatus {
	if listed.State != pleg.StateExited {
		return nil
	}
	if final := last.Container(listed.ID); final != nil && final.State == pleg.StateExited {
		return final
	}
	return nil
}

// containerStatus returns the status of a listed container, or nil if the runtime
// no longer knows it.
func (c *Client) containerStatus(ctx context.Context, listed *pleg.Container) (*pleg.ContainerStatus, error) {
	var answer *runtimeapi.ContainerStatusResponse
	err := c.statusCall(ctx, func(ctx context.Context) (err error) {
		answer, err = c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: string(listed.ID)})
		return err
	})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	st := answer.GetStatus()
	if err := checkStatus(err, st == nil, st.GetId(), listed); err != nil {
		return nil, err
	}
	if !defined(runtimeapi.ContainerState_name, int32(st.GetState())) && listed.State != pleg.StateUnknown {
		return nil, noSuchState(int32(st.GetState()), listed)
	}
	return newContainerStatus(st, listed), nil
}

// sandboxStatus is containerStatus for a sandbox.
func (c *Client) sandboxStatus(ctx context.Context, listed *pleg.Container) (*pleg.SandboxStatus, error) {
	var answer *runtimeapi.PodSandboxStatusResponse
	err := c.statusCall(ctx, func(ctx context.Context) (err error) {
		answer, err = c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: string(listed.ID)})
		return err
	})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	st := answer.GetStatus()
	if err := checkStatus(err, st == nil, st.GetId(), listed); err != nil {
		return nil, err
	}
	if !defined(runtimeapi.PodSandboxState_name, int32(st.GetState())) && listed.State != pleg.StateUnknown {
		return nil, noSuchState(int32(st.GetState()), listed)
	}
	return newSandboxStatus(st, listed), nil
}

// checkStatus returns the error of a call, or an error if its answer is not a
// status of what was listed.
func checkStatus(err error, missing bool, id string, listed *pleg.Container) error {
	switch {
	case err != nil:
		return err
	case missing:
		return errors.New("malformed answer: no status in it")
	case id != string(listed.ID):
		return fmt.Errorf("malformed answer: the status is that of %q", id)
	}
	return nil
}

// noSuchState is the error of a status whose state is unknown although the list has
// a known one. The status is not used: nothing would have the pod inspected again
// once the runtime has recovered. If both are unknown, the state may be one of a
// later CRI.
func noSuchState(state int32, listed *pleg.Container) error {
	return fmt.Errorf("malformed answer: there is no state %d, and the list says %v", state, listed.State)
}

// hungAfter is the age at which a status call no longer counts against
// Options.MaxStatusCalls. containerd answers within 20 ms with 32 calls in flight,
// so a call of one second does not wait for the runtime's capacity.
const hungAfter = time.Second

// statusCall makes one call within the bound of all status calls and within
// Options.StatusTimeout; waiting for the bound is not part of the timeout.
func (c *Client) statusCall(ctx context.Context, call func(context.Context) error) error {
	select {
	case c.calls <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for one of %d status calls: %w", cap(c.calls), context.Cause(ctx))
	}
	release := func() { <-c.calls }
	hung := time.AfterFunc(hungAfter, release)
	defer func() {
		if hung.Stop() {
			release()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, c.opts.StatusTimeout)
	defer cancel()
	return call(ctx)
}
