package cri

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
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
	containers := make([]answer, len(pod.Containers))
	sandboxes := make([]answer, len(pod.Sandboxes))
	calls, callCtx := errgroup.WithContext(ctx)
	calls.SetLimit(max(1, c.opts.MaxStatusCalls/podShare))
	for i, listed := range pod.Containers { // first, since they take longer
		if finalStatus(listed, last) == nil {
			calls.Go(func() error { return c.fetchContainer(callCtx, listed.ID, &containers[i]) })
		}
	}
	for i, listed := range pod.Sandboxes {
		calls.Go(func() error { return c.fetchSandbox(callCtx, listed.ID, &sandboxes[i]) })
	}
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	st := &pleg.PodStatus{UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
	if err := fill(st, pod, last, containers, sandboxes); err != nil {
		return nil, err
	}
	return st, nil
}

// fill decodes the answers, in the order of what was listed.
func fill(st *pleg.PodStatus, pod *pleg.Pod, last *pleg.PodStatus, containers, sandboxes []answer) error {
	for i, listed := range pod.Containers {
		if final := finalStatus(listed, last); final != nil {
			st.Containers = append(st.Containers, final)
			continue
		}
		container, err := containers[i].container(listed, last.Container(listed.ID))
		if err != nil {
			return fmt.Errorf("container_status %s: %w", listed.ID, err)
		}
		if container != nil {
			st.Containers = append(st.Containers, container)
		}
	}
	for i, listed := range pod.Sandboxes {
		sandbox, err := sandboxes[i].sandbox(listed, last.Sandbox(listed.ID))
		if err != nil {
			return fmt.Errorf("podsandbox_status %s: %w", listed.ID, err)
		}
		if sandbox != nil {
			st.Sandboxes = append(st.Sandboxes, sandbox)
		}
	}
	st.IPs = podIPs(st.Sandboxes)
	return nil
}

// finalStatus returns what last has of a container that had exited already, or
// nil: such a status does not change.
func finalStatus(listed *pleg.Container, last *pleg.PodStatus) *pleg.ContainerStatus {
	if listed.State != pleg.StateExited {
		return nil
	}
	if final := last.Container(listed.ID); final != nil && final.State == pleg.StateExited {
		return final
	}
	return nil
}

func (c *Client) fetchContainer(ctx context.Context, id pleg.ContainerID, into *answer) error {
	request := &runtimeapi.ContainerStatusRequest{ContainerId: string(id)}
	if err := c.fetch(ctx, runtimeapi.RuntimeService_ContainerStatus_FullMethodName, request, into); err != nil {
		return fmt.Errorf("container_status %s: %w", id, err)
	}
	return nil
}

func (c *Client) fetchSandbox(ctx context.Context, id pleg.ContainerID, into *answer) error {
	request := &runtimeapi.PodSandboxStatusRequest{PodSandboxId: string(id)}
	if err := c.fetch(ctx, runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName, request, into); err != nil {
		return fmt.Errorf("podsandbox_status %s: %w", id, err)
	}
	return nil
}

// fetch makes one status call. The answer stays unset if the runtime does not
// know the id any more.
func (c *Client) fetch(ctx context.Context, method string, request proto.Message, into *answer) error {
	err := c.statusCall(ctx, func(ctx context.Context) error {
		return c.conn.Invoke(ctx, method, request, into, grpc.StaticMethod(), grpc.ForceCodecV2(c.answers))
	})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
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
	giveBack := func() { <-c.calls }
	hung := time.AfterFunc(hungAfter, giveBack)
	defer func() {
		if hung.Stop() {
			giveBack()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, c.opts.StatusTimeout)
	defer cancel()
	return call(ctx)
}
