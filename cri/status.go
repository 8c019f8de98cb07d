package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// containerStatus returns the status of a listed container, or nil if the runtime
// no longer knows it. The error is a [pleg.CallError].
func (c *Client) containerStatus(ctx context.Context, uid pleg.PodUID, listed *pleg.Container) (*pleg.ContainerStatus, error) {
	call := pleg.Call{Method: "ContainerStatus", PodUID: uid, ID: listed.ID, Container: listed.Name}
	answer, err := statusCall(ctx, c, call, c.runtime.ContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: string(listed.ID)})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	if err := checkStatus(err, answer.GetStatus(), runtimeapi.ContainerState_name, listed); err != nil {
		return nil, &pleg.CallError{Call: call, Err: err}
	}
	return newContainerStatus(answer.GetStatus(), listed), nil
}

// sandboxStatus is containerStatus for a sandbox. carried are the statuses of its
// containers, if the answer contains them as of this call.
func (c *Client) sandboxStatus(ctx context.Context, on *connection, uid pleg.PodUID, listed *pleg.Container) (st *pleg.SandboxStatus, carried []*runtimeapi.ContainerStatus, err error) {
	began := time.Now()
	call := sandboxCall(uid, listed.ID)
	answer, err := statusCall(ctx, c, call, c.runtime.PodSandboxStatus, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: string(listed.ID)})
	if status.Code(err) == codes.NotFound {
		return nil, nil, nil
	}
	if err := checkStatus(err, answer.GetStatus(), runtimeapi.PodSandboxState_name, listed); err != nil {
		return nil, nil, &pleg.CallError{Call: call, Err: err}
	}
	on.uncarried.Store(answer.GetTimestamp() <= 0) // a timestamp comes only together with the containers' statuses
	if answer.GetTimestamp() >= began.UnixNano() {
		carried = answer.GetContainersStatuses()
	}
	return newSandboxStatus(answer.GetStatus(), listed), carried, nil
}

func sandboxCall(uid pleg.PodUID, id pleg.ContainerID) pleg.Call {
	return pleg.Call{Method: "PodSandboxStatus", PodUID: uid, ID: id}
}

// checkStatus returns the error of a call, or an error if its answer is not a status of the listed
// item. A status whose state is unknown is an error if the listed state is known: no later change
// would cause an inspection once the runtime has recovered. If both are unknown, the state may be
// from a later CRI.
func checkStatus[N ~int32, S interface {
	comparable
	GetId() string
	GetState() N
}](err error, st S, states map[int32]string, listed *pleg.Container) error {
	var none S
	_, defined := states[int32(st.GetState())]
	switch {
	case err != nil:
		return err
	case st == none:
		return errors.New("malformed answer: no status in it")
	case st.GetId() != string(listed.ID):
		return fmt.Errorf("malformed answer: the status is of %q", st.GetId())
	case !defined && listed.State != pleg.StateUnknown:
		return fmt.Errorf("malformed answer: there is no state %d, and the list says %v", int32(st.GetState()), listed.State)
	}
	return nil
}

// statusCall makes one call within Options.StatusTimeout.
func statusCall[Q, A any](ctx context.Context, c *Client, what pleg.Call, call func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.StatusTimeout)
	defer cancel()
	defer c.inFlight.begin(what)()
	return call(ctx, request)
}

// newSandboxStatus converts an answer. The attempt comes from the list, because the
// metadata of an answer may be missing.
func newSandboxStatus(s *runtimeapi.PodSandboxStatus, listed *pleg.Container) *pleg.SandboxStatus {
	st := &pleg.SandboxStatus{
		ID:          listed.ID,
		Attempt:     listed.Attempt,
		Ready:       s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   wallTime(s.GetCreatedAt()),
		HostNetwork: s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
		Labels:      s.GetLabels(),
		Annotations: s.GetAnnotations(),
	}
	if st.HostNetwork {
		return st
	}
	for _, ip := range append([]*runtimeapi.PodIP{{Ip: s.GetNetwork().GetIp()}}, s.GetNetwork().GetAdditionalIps()...) {
		if ip.GetIp() != "" {
			st.IPs = append(st.IPs, ip.GetIp())
		}
	}
	return st
}

func newContainerStatus(s *runtimeapi.ContainerStatus, listed *pleg.Container) *pleg.ContainerStatus {
	return &pleg.ContainerStatus{
		ID:          listed.ID,
		Name:        listed.Name,
		Attempt:     listed.Attempt,
		State:       containerStates[s.GetState()],
		CreatedAt:   wallTime(s.GetCreatedAt()),
		StartedAt:   wallTime(s.GetStartedAt()),
		FinishedAt:  wallTime(s.GetFinishedAt()),
		ExitCode:    s.GetExitCode(),
		Reason:      s.GetReason(),
		Message:     s.GetMessage(),
		Image:       cmp.Or(s.GetImage().GetUserSpecifiedImage(), s.GetImage().GetImage()),
		ImageRef:    s.GetImageRef(),
		LogPath:     s.GetLogPath(),
		Labels:      s.GetLabels(),
		Annotations: s.GetAnnotations(),
	}
}

// podIPs returns the addresses of the newest sandbox that is ready.
func podIPs(sandboxes []*pleg.SandboxStatus) []string {
	var newest *pleg.SandboxStatus
	for _, s := range sandboxes {
		if s.Ready && (newest == nil || s.CreatedAt.After(newest.CreatedAt)) {
			newest = s
		}
	}
	if newest == nil {
		return nil
	}
	return newest.IPs
}
