package doctor

import (
	"context"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// width is the number of status calls in flight: containerd on two cores serves
	// no more, and more calls would add to its load.
	width = 4
	// hungAfter is the age at which a call no longer counts against width.
	hungAfter = 500 * time.Millisecond
)

// madeCall is a call with its result. Only a status call has an ID.
type madeCall struct {
	ItemCall
	err   error
	bytes int // of the answer
}

// hangs reports whether a call did not return in time.
func (c *madeCall) hangs() bool { return status.Code(c.err) == codes.DeadlineExceeded }

// fails reports whether a call returned an error. What was removed since the list is not
// found.
func (c *madeCall) fails() bool {
	return c.err != nil && !c.hangs() && status.Code(c.err) != codes.NotFound
}

// call is the interceptor of all calls. It makes one within Options.CallTimeout and records its
// result, unless the examination ends first. A malformed answer is recorded as an error.
func (e *examination) call(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	bounded, cancel := context.WithTimeout(ctx, e.CallTimeout)
	defer cancel()
	item, _ := ctx.Value(itemKey{}).(ItemCall)
	c := madeCall{ItemCall: item}
	c.Method, c.began = path.Base(method), time.Now()
	err := invoke(bounded, method, request, reply, conn, opts...)
	c.Seconds, c.err = time.Since(c.began).Seconds(), err
	deadline, ends := ctx.Deadline() // ctx itself may end a little later
	if err != nil && (ctx.Err() != nil || ends && !time.Now().Before(deadline)) {
		return err
	}
	if r, ok := request.(*runtimeapi.ContainerStatusRequest); ok && r.GetVerbose() {
		return err // it is the second call for this container
	}
	if err == nil {
		c.bytes, c.err = proto.Size(reply.(proto.Message)), malformed(c.ID, reply)
	}
	if c.err != nil {
		c.Error = status.Convert(c.err).Message()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, c)
	return err
}

// malformed returns an error if an answer is not that of the object with this id, or if items of
// a list have no metadata.
func malformed(id string, reply any) error {
	got, items, bad := id, 0, 0
	switch r := reply.(type) {
	case *runtimeapi.PodSandboxStatusResponse:
		got = r.GetStatus().GetId()
	case *runtimeapi.ContainerStatusResponse:
		got = r.GetStatus().GetId()
	case *runtimeapi.ListPodSandboxResponse:
		for _, s := range r.GetItems() {
			if items++; s.GetMetadata() == nil {
				bad++
			}
		}
	case *runtimeapi.ListContainersResponse:
		for _, c := range r.GetContainers() {
			if items++; c.GetMetadata() == nil {
				bad++
			}
		}
	}
	switch {
	case bad > 0:
		return status.Errorf(codes.Unknown, "malformed answer: %d of %d items have no metadata", bad, items)
	case got == id:
		return nil
	case got == "":
		return status.Error(codes.Unknown, "malformed answer: it has no status")
	}
	return status.Errorf(codes.Unknown, "malformed answer: it is the status of %s", got)
}

// item is a sandbox or container in a list, and the call for its status.
type item struct {
	ItemCall
	runs, exited bool
	bytes        int
	annotations  map[string]string
	plain        bool // its runtime handler is one of plainHandlers
}

// itemKey is the key of an [ItemCall] in the context of a status call.
type itemKey struct{}

// list makes both list calls at once, as a relist does. If a list is too large for one answer, it
// lists each state. It returns what is in the lists, what runs first.
func (e *examination) list(ctx context.Context) []item {
	var sandboxes []*runtimeapi.PodSandbox
	var containers []*runtimeapi.Container
	var both sync.WaitGroup
	both.Go(func() {
		inPortions(runtimeapi.PodSandboxState_name, func(state *int32) error {
			request := &runtimeapi.ListPodSandboxRequest{}
			if state != nil {
				request.Filter = &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState(*state)}}
			}
			answer, err := e.runtime.ListPodSandbox(ctx, request)
			sandboxes = append(sandboxes, answer.GetItems()...)
			return err
		})
	})
	both.Go(func() {
		inPortions(runtimeapi.ContainerState_name, func(state *int32) error {
			request := &runtimeapi.ListContainersRequest{}
			if state != nil {
				request.Filter = &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState(*state)}}
			}
			answer, err := e.runtime.ListContainers(ctx, request)
			containers = append(containers, answer.GetContainers()...)
			return err
		})
	})
	both.Wait()

	owner := make(map[string]*runtimeapi.PodSandbox)
	var running, stopped []item
	add := func(i item, of *runtimeapi.PodSandbox) {
		pod := of.GetMetadata()
		i.Pod, i.PodUID = pod.GetNamespace()+"/"+pod.GetName(), pod.GetUid()
		i.plain = of != nil && plainHandlers[of.GetRuntimeHandler()]
		if i.runs {
			running = append(running, i)
		} else {
			stopped = append(stopped, i)
		}
	}
	for _, s := range sandboxes {
		owner[s.GetId()] = s
		add(item{
			ItemCall: ItemCall{Method: "PodSandboxStatus", ID: s.GetId()}, runs: s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
			bytes: proto.Size(s), annotations: s.GetAnnotations(),
		}, s)
	}
	for _, c := range containers {
		state := c.GetState()
		add(item{
			ItemCall: ItemCall{Method: "ContainerStatus", Container: c.GetMetadata().GetName(), ID: c.GetId()},
			runs:     state == runtimeapi.ContainerState_CONTAINER_RUNNING, exited: state == runtimeapi.ContainerState_CONTAINER_EXITED,
			bytes: proto.Size(c), annotations: c.GetAnnotations(),
		}, owner[c.GetPodSandboxId()])
	}
	return append(running, stopped...)
}

// inPortions makes a list call, and if the list is too large, one for each state.
func inPortions(states map[int32]string, list func(state *int32) error) {
	if status.Code(list(nil)) == codes.ResourceExhausted {
		for state := range states {
			_ = list(&state) // recorded
		}
	}
}

// inspect asks for the status of everything until ctx ends.
func (e *examination) inspect(ctx context.Context, items []item) {
	places := make(chan struct{}, width)
	var calls sync.WaitGroup
	defer calls.Wait()
	for _, i := range items {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		calls.Go(func() {
			release := sync.OnceFunc(func() { <-places })
			defer release()
			defer time.AfterFunc(hungAfter, release).Stop()
			e.askStatus(ctx, i.ItemCall)
		})
	}
}

// askStatus asks for one status. It counts a sandbox without an address.
func (e *examination) askStatus(ctx context.Context, i ItemCall) {
	ctx = context.WithValue(ctx, itemKey{}, i)
	if i.Method == "ContainerStatus" {
		_, _ = e.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: i.ID}) // recorded
		return
	}
	answer, _ := e.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: i.ID})
	s := answer.GetStatus()
	hostNetwork := s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if s.GetId() == i.ID && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && !hostNetwork && s.GetNetwork().GetIp() == "" {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.report.Counts.WithoutIP++
	}
}
