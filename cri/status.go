package cri

import (
	"context"
	"fmt"
	"sync"
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
// once. What the runtime no longer knows is left out. A container that is
// listed as exited and has exited in last is taken from there. It blocks until
// all have answered or one has failed; then the error names the call and the
// id and wraps the grpc status. The IPs are those of the newest ready sandbox;
// ObservedAt is left to the caller, who knows when the pod was listed.
func (c *Client) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	sandboxes := make([]*pleg.SandboxStatus, len(pod.Sandboxes))
	containers := make([]*pleg.ContainerStatus, len(pod.Containers))
	calls, callCtx := errgroup.WithContext(ctx)
	calls.SetLimit(max(1, c.opts.MaxStatusCalls/podShare))
	for i, s := range pod.Sandboxes {
		calls.Go(func() (err error) {
			sandboxes[i], err = c.sandboxStatus(callCtx, s)
			return err
		})
	}
	for i, listed := range pod.Containers {
		if final := last.Container(listed.ID); final != nil &&
			listed.State == pleg.StateExited && final.State == pleg.StateExited {
			containers[i] = final
			continue
		}
		calls.Go(func() (err error) {
			containers[i], err = c.containerStatus(callCtx, listed)
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		return nil, fmt.Errorf("inspect pod %s: %w", pod.UID, err)
	}
	st := &pleg.PodStatus{
		UID:        pod.UID,
		Name:       pod.Name,
		Namespace:  pod.Namespace,
		Containers: found(containers),
		Sandboxes:  found(sandboxes),
	}
	st.IPs = podIPs(st.Sandboxes)
	return st, nil
}

func (c *Client) sandboxStatus(ctx context.Context, listed *pleg.Container) (*pleg.SandboxStatus, error) {
	var answer *runtimeapi.PodSandboxStatusResponse
	err := c.statusCall(ctx, func(ctx context.Context) (err error) {
		answer, err = c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: string(listed.ID)})
		return err
	})
	if err == nil {
		err = verify(answer.GetStatus() == nil, answer.GetStatus().GetId(), listed.ID)
	}
	switch {
	case status.Code(err) == codes.NotFound:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("podsandbox_status %s: %w", listed.ID, err)
	}
	return newSandboxStatus(answer.GetStatus(), listed), nil
}

func (c *Client) containerStatus(ctx context.Context, listed *pleg.Container) (*pleg.ContainerStatus, error) {
	var answer *runtimeapi.ContainerStatusResponse
	err := c.statusCall(ctx, func(ctx context.Context) (err error) {
		answer, err = c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: string(listed.ID)})
		return err
	})
	if err == nil {
		err = verify(answer.GetStatus() == nil, answer.GetStatus().GetId(), listed.ID)
	}
	switch {
	case status.Code(err) == codes.NotFound:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("container_status %s: %w", listed.ID, err)
	}
	return newContainerStatus(answer.GetStatus(), listed), nil
}

// hungAfter is the age at which a status call no longer counts against
// Options.MaxStatusCalls. containerd answers within 20 ms, 32 calls in flight:
// what takes a second does not wait for the runtime's capacity.
const hungAfter = time.Second

// statusCall makes one call within the bound of all status calls and within
// Options.StatusTimeout; waiting for the bound is not part of the timeout.
func (c *Client) statusCall(ctx context.Context, call func(context.Context) error) error {
	select {
	case c.calls <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for one of %d status calls: %w", cap(c.calls), context.Cause(ctx))
	}
	giveBack := sync.OnceFunc(func() { <-c.calls })
	defer giveBack()
	defer time.AfterFunc(hungAfter, giveBack).Stop()
	ctx, cancel := context.WithTimeout(ctx, c.opts.StatusTimeout)
	defer cancel()
	return call(ctx)
}

// verify rejects an answer that is about nothing or about something else.
func verify(isNil bool, got string, want pleg.ContainerID) error {
	switch {
	case isNil:
		return errNilStatus
	case got != string(want):
		return fmt.Errorf("malformed answer: the status is that of %q", got)
	}
	return nil
}

// found leaves out the statuses that are nil, which stand for ids that are gone.
func found[S any](statuses []*S) []*S {
	kept := statuses[:0]
	for _, s := range statuses {
		if s != nil {
			kept = append(kept, s)
		}
	}
	return kept
}
